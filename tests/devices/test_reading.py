import pytest

from potluck.devices import read_devices
from potluck.devices.reading import Contents, read
from potluck.errors import BadInput

DEVICE = """
[devices.box]
kind = "board"
link = "wifi"
macs_per_second = 1e9
memory = 1000
storage = 2000
active_watts = 2.0
idle_watts = 1.0
"""
LINK = """
[links.wire]
up = 100
down = 100
latency = 0
jitter = 0
up_watts = 0
down_watts = 0
dropout = 0
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "own.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_plain_numbers_are_enough(write):
    devices, links = read_devices(write(DEVICE + LINK))
    assert devices["box"].title == "box"
    assert devices["box"].memory == 1000
    assert links["wire"].transfer(100, up=True, at=0.0, u=0.1) == 8.0


def test_like_within_the_file_and_over_two_steps(write):
    text = DEVICE + '[devices.small]\nlike = "box"\nmemory = 10\n[devices.tiny]\nlike = "small"\nstorage = 5\n'
    devices, _ = read_devices(write(text))
    assert (devices["tiny"].memory, devices["tiny"].storage, devices["tiny"].kind) == (10, 5, "board")
    assert devices["tiny"].sources["idle_watts"] == "as box: given in own.toml"


def test_like_inherits_trace_and_absences(write):
    _, links = read_devices(write('[links.bus]\nlike = "lte-moving"\nup = [1e6, "measured"]\non_share = 0.3\n'))
    assert links["bus"].trace is not None
    assert links["bus"].availability.on_share == 0.3
    assert links["bus"].availability.period == 600.0
    assert links["bus"].sources["up"] == "measured"


def test_a_walk_of_ones_own(write):
    walk = "[traces.w]\nseconds=1\nsteps=9\nsigma=0.2\ncorrelation=0.5\nfloor=0.5\nceiling=2\nseed=1\n"
    _, links = read_devices(write(LINK + 'trace = "w"\n' + walk))
    assert links["wire"].trace.period == 9.0


BAD = [
    (DEVICE.replace("memory = 1000\n", ""), "devices.box.memory: must be a whole number of bytes above 0, got nothing"),
    (DEVICE.replace("idle_watts = 1.0\n", ""), "devices.box.idle_watts: must be watts above 0, got nothing"),
    (LINK.replace("latency = 0\n", ""), "links.wire.latency: must be seconds, 0 or more, got nothing"),
    (DEVICE.replace("memory", "memroy"), "devices.box: key: 'memroy' is not known, did you mean 'memory'"),
    (LINK.replace("jitter", "jiter"), "links.wire: key: 'jiter' is not known, did you mean 'jitter'"),
    (
        DEVICE.replace("[devices.box]", "[device.box]"),
        "section: 'device' is not known, did you mean 'devices'",
    ),
    (
        DEVICE.replace("1000", "0"),
        "devices.box.memory: must be a whole number of bytes above 0, got 0",
    ),
    (DEVICE.replace("1000", "10.5"), "devices.box.memory: must be a whole number of bytes above 0, got 10.5"),
    (DEVICE.replace("1000", '"4 GB"'), "devices.box.memory: must be a whole number of bytes above 0, got '4 GB'"),
    (DEVICE.replace("1000", "true"), "devices.box.memory: must be a whole number of bytes above 0, got True"),
    (
        DEVICE.replace("1e9", "nan"),
        "devices.box.macs_per_second: must be multiply-accumulates per second above 0, got nan",
    ),
    (
        DEVICE.replace("1e9", "inf"),
        "devices.box.macs_per_second: must be multiply-accumulates per second above 0, got inf",
    ),
    (
        DEVICE.replace("1e9", "[1e9]"),
        r"devices.box.macs_per_second: must be a number or \[number, source\], got \[1000000000.0\]",
    ),
    (
        DEVICE.replace("1e9", '[1e9, " "]'),
        r"devices.box.macs_per_second: must be a number or \[number, source\], got \[1000000000.0, ' '\]",
    ),
    (DEVICE.replace('"board"', '"bord"'), "devices.box.kind: 'bord' is not known, did you mean 'board'"),
    (DEVICE.replace('"wifi"', '"wify"'), "devices.box.link: 'wify' is not known, did you mean 'wifi'"),
    (DEVICE.replace('link = "wifi"\n', ""), "devices.box.link: must be a text, got None"),
    (DEVICE.replace(".box", ".jetson-nano"), "devices.jetson-nano: the catalogue has this name"),
    (DEVICE.replace(".box", '."My Box"'), "devices.My Box: a name has small letters"),
    (
        '[devices.a]\nlike = "b"\n[devices.b]\nlike = "a"\n',
        "devices.b.like: must not lead back to itself, got a -> b -> a",
    ),
    ('[devices.a]\nlike = "jetson-nan"\n', "like: 'jetson-nan' is not known, did you mean 'jetson-nano'"),
    (
        LINK.replace("dropout = 0", "dropout = 1"),
        "links.wire.dropout: must be a probability from 0 to below 1, got 1",
    ),
    (LINK + "on_share = 0.5\n", "links.wire: must have both on_share and period, got only one of them"),
    (LINK + 'trace = "nowhere"\n', "links.wire.trace: 'nowhere' is not known"),
    (
        LINK + "[traces.t]\nseconds = 1\nfactors = []\n",
        r"traces.t.factors: must be a list of numbers, each 0 or more, got \[\]",
    ),
    (
        LINK + "[traces.t]\nseconds = 1\nfactors = [0, 0]\n",
        "traces.t.factors: at least one must be above 0, got only 0",
    ),
    (
        LINK + "[traces.t]\nseconds = 1\nfactors = [1, -1]\n",
        r"traces.t.factors\[1\]: must be a factor, 0 or more, got -1",
    ),
    (LINK + "[traces.t]\nfactors = [1]\n", "traces.t.seconds: must be seconds above 0, got nothing"),
    (LINK + "[traces.t]\nseconds = 1\nfactors = [1]\nsigma = 1\n", "traces.t.sigma: a trace has either"),
    (LINK + "[traces.t]\nseconds = 1\n", "traces.t.steps: must be a whole number from 1 to 1000000, got nothing"),
    ("devices = 3\n", "devices must be tables"),
    ("[devices]\nbox = 3\n", "devices.box must be a table"),
    ("[devices.box\n", "this is not TOML"),
    ("", r"neither a \[devices.name\] nor a \[links.name\] table"),
    ("[fleets.f]\n", "section: 'fleets' is not known"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD, ids=range(len(BAD)))
def test_a_bad_file_gets_one_sentence(write, text, sentence):
    with pytest.raises(BadInput, match=sentence) as refused:
        read_devices(write(text))
    assert "\n" not in str(refused.value)
    assert "own.toml" in str(refused.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="there is no file"):
        read_devices(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="cannot be read"):
        read_devices(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="cannot be read"):
        read_devices(tmp_path / "binary.toml")


def test_the_catalogue_itself_must_give_sources():
    bare = {"links": {"wire": {"title": "w", "up": 1}}}
    with pytest.raises(BadInput, match=r"links.wire.up: a figure of the catalogue is \[value, source\]"):
        read(bare, "catalogue.toml", Contents(), shipped=True)
