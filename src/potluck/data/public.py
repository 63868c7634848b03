"""The public sets by name: one line each, where they come from, and how their arrays become a Dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from potluck.data import irregular
from potluck.data.dataset import Array, Dataset, twins
from potluck.data.resample import resampled
from potluck.data.strata import strata
from potluck.errors import install_extra

Arrays = Mapping[str, Array]
Build = Callable[[Arrays], Dataset]


@dataclass(frozen=True)
class Public:
    line: str  # one line that describes it
    origin: str  # where to get it
    build: Build
    file: str = ""  # the set whose file it is read from, where that is another


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


DIGITS = tuple(str(d) for d in range(10))
CIFAR10 = _names("airplane automobile bird cat deer dog frog horse ship truck")
EXERCISES = _names("PEN ABD FEL IR ER TRAP ROW")
GESTURES = _names("good ok victory stop fist")
HAR = _names("walking upstairs downstairs sitting standing laying")
MOTIONS = _names("downstairs upstairs walking jogging sitting standing")
PLACES = _names("outdoor indoor dark")
SPEAKERS = _names("george jackson lucas nicolas theo yweweler")
TURNING = _names("seated standing-up walking turning sitting-down")
UWB_NODES = _names("parking-2 parking-3 corridor-1 corridor-2 corridor-3 room-1 room-2 room-3")
UTD = _names(
    "swipe-left swipe-right wave clap throw arm-cross basketball-shoot draw-x draw-circle-cw draw-circle-ccw "
    "draw-triangle bowling boxing baseball-swing tennis-swing arm-curl tennis-serve push knock catch "
    "pick-up-and-throw jog walk sit-to-stand stand-to-sit lunge squat"
)
WIAR = _names(
    "horizontal-arm-wave high-arm-wave two-hands-wave high-throw draw-x draw-tick toss-paper forward-kick "
    "side-kick bend hand-clap walk phone-call drink-water sit-down squat"
)
_HIP = 3  # position of the hip centre among the 20 joints


def _make(
    name: str,
    a: Arrays,
    class_names: tuple[str, ...],
    *,
    x: Array | None = None,
    subject: Array | None = None,
    subject_names: tuple[str, ...] = (),
    group: Array | None = None,
    overlap: int = 0,
    kind: str = "",
) -> Dataset:
    """Make a Dataset with those of subject, t, length and split that the file has."""
    return Dataset(
        name=name,
        x=a["x"] if x is None else x,
        y=a["y"],
        classes=len(class_names),
        class_names=class_names,
        subject=a.get("subject") if subject is None else subject,
        t=a.get("t"),
        length=a.get("length"),
        split=a.get("split"),
        group=group,
        subject_names=subject_names,
        overlap=overlap,
        kind=kind,
    )


def _watch(a: Arrays) -> Dataset:
    """Make 20 clients of person and arm: a model of one arm does badly on the other arm."""
    sides = ("left", "right")
    return _make(
        "watch_exercises",
        a,
        EXERCISES,
        subject=(a["subject"] - 1) * 2 + a["side"],
        subject_names=tuple(f"p{person:02d}-{side}" for person in range(1, 11) for side in sides),
        group=a["recording"],
        overlap=1,
    )


def _depth(a: Arrays) -> Dataset:
    """Read video frames: equal images form a group, so that they stay on one side of a split."""
    names = tuple(f"{place}-{node}" for place in PLACES for node in (1, 2, 3))
    return _make("clusterfl_depth", a, GESTURES, subject_names=names, group=twins(a["x"]))


def _skeleton(a: Arrays) -> Dataset:
    """Take joints relative to the hip centre: camera coordinates would reveal where people stood."""
    frames = a["x"].reshape(*a["x"].shape[:2], -1, 3)
    return _make("utd_mhad_skeleton", a, UTD, x=(frames - frames[:, :, _HIP : _HIP + 1]).reshape(a["x"].shape))


def _wiar(a: Arrays) -> Dataset:
    heights = ("60cm", "90cm", "120cm")
    return _make("wiar", a, WIAR, subject=a["environment"], subject_names=heights, kind="series")


def _phone_and_watch(a: Arrays) -> Dataset:
    """Make 46 clients of person and device: a model of the phone does badly on the watch. Time stamps in seconds."""
    return replace(
        _make(
            "sp_sw_har",
            a,
            TURNING,
            x=a["x"].astype(np.float32),
            subject=(a["subject"].astype(np.int64) - 1) * 2 + a["device"],
            subject_names=tuple(f"p{person:02d}-{device}" for person in range(1, 24) for device in ("phone", "watch")),
            group=a["recording"],
            overlap=1,
        ),
        t=a["t"].astype(np.float32) / 1000.0,
    )


def _spoken(a: Arrays) -> Dataset:
    return _make("spoken_digits", a, DIGITS, x=a["x"].astype(np.float32), subject_names=SPEAKERS, kind="series")


def _imu(a: Arrays) -> Dataset:
    return _make("clusterfl_imu", a, ("corridor", "upstairs", "downstairs"), x=a["x"].reshape(-1, 100, 9))


def _har(a: Arrays) -> Dataset:
    return _make("uci_har", a, HAR, group=a["segment"], overlap=1)


def _cmapss(a: Arrays) -> Dataset:
    """Make a client of every engine; the target is its remaining life in cycles, at most 125.

    An engine is one recording, and its windows overlap by 29 of 30 cycles. The published split has other engines as
    test rows (`partition.split = given` with iid clients); by default a stretch of every life is held back.
    """
    y, names = strata(a["y"])
    return replace(
        _make("cmapss_fd001", {**a, "y": y}, names, group=a["subject"], overlap=29),
        target=a["y"].astype(np.float32),
        asks="regression",
        rule="stretch",
        channel_names=tuple(f"s{int(k)}" for k in a["sensor"]),
    )


_HAR = Public(
    "phone on the waist, 6 activities, 30 people", "UCI repository, Human Activity Recognition Using Smartphones", _har
)
_WATCH = Public(
    "Apple Watch, 7 shoulder exercises, 10 people x 2 arms as 20 clients",
    f"the package seglearn 1.2.5 (`{install_extra('demo')}`)",
    _watch,
)


def _at(rate: int, of: Public, file: str, made: int = 50) -> Public:
    """Resample the recordings, which were made at 50 Hz, or at `made`."""

    def build(a: Arrays) -> Dataset:
        whole = of.build(a)
        x, t = resampled(whole.x, float(made), float(rate))
        length = None if whole.length is None else np.maximum(1, whole.length * rate // made)
        return replace(whole, name=f"{file}_{rate}hz", x=x, t=np.broadcast_to(t, x.shape[:2]), length=length)

    return Public(f"{file} at {rate} Hz instead of {made}, with time stamps in seconds", of.origin, build, file=file)


_MOTION = Public(
    "phone in the pocket, 6 activities, 24 people",
    "GitHub mmalekzadeh/motion-sense",
    lambda a: _make("motionsense", a, MOTIONS, group=a["recording"], overlap=1),
)
_INERTIAL = Public(
    "wearable on wrist or thigh, 27 actions, 8 people",
    "UTD-MHAD, University of Texas at Dallas",
    lambda a: _make("utd_mhad_inertial", a, UTD),
)
_SKELETON = Public("Kinect skeletons, 27 actions, 8 people", "UTD-MHAD, University of Texas at Dallas", _skeleton)
PUBLIC: dict[str, Public] = {
    "air_quality": Public(
        "gas sensors by a road, 12-hour windows, 4 benzene levels, 14 months as clients",
        "AirQualityUCI.csv of the UCI repository",
        irregular.air_quality,
    ),
    "bosch_cnc": Public(
        "milling vibration, normal or anomalous, 3 machines",
        "GitHub boschresearch/CNC_Machining",
        irregular.bosch_cnc,
    ),
    "bosch_cnc_irregular": Public(
        "bosch_cnc with 128 readings per window at irregular moments",
        "GitHub boschresearch/CNC_Machining",
        irregular.bosch_cnc_irregular,
        file="bosch_cnc",
    ),
    "chars74k_digits": Public(
        "digits in computer fonts, like MNIST, no natural clients",
        "Chars74K, English fonts",
        lambda a: _make("chars74k_digits", a, DIGITS, group=twins(a["x"])),  # some fonts share their digits
    ),
    "cifar10": Public(
        "colour images of 10 kinds, no natural clients",
        "CIFAR-10, University of Toronto",
        lambda a: _make("cifar10", a, CIFAR10, x=np.ascontiguousarray(a["x"].transpose(0, 3, 1, 2))),
    ),
    "clusterfl_depth": Public(
        "depth-camera gestures, 5 classes, 9 cameras in 3 places", "GitHub xmouyang/FL-Datasets-for-HAR", _depth
    ),
    "clusterfl_imu": Public(
        "IMU walking, 70 windows only, 3 classes, no natural clients", "GitHub xmouyang/ClusterFL", _imu
    ),
    "clusterfl_uwb": Public(
        "movement from ultra-wide-band ranging, 2 classes, 8 nodes in 3 places",
        "GitHub xmouyang/FL-Datasets-for-HAR",
        lambda a: _make("clusterfl_uwb", a, ("static", "walking"), subject_names=UWB_NODES),
    ),
    "cmapss_fd001": Public(
        "turbofan engines, windows of 30 cycles, remaining life (regression), 100 engines as clients",
        "NASA, turbofan engine degradation simulation (C-MAPSS), FD001",
        _cmapss,
    ),
    "mnist": Public("handwritten digits, no natural clients", "MNIST, Yann LeCun", lambda a: _make("mnist", a, DIGITS)),
    "motionsense": _MOTION,
    "motionsense_10hz": _at(10, _MOTION, "motionsense"),
    "physionet2012": Public(
        "intensive care, 48 hours at irregular times, survival, 4 kinds of unit",
        "PhysioNet/CinC Challenge 2012, set-a",
        irregular.physionet2012,
    ),
    "sp_sw_har": Public(
        "phone and watch at once, 5 activities, 23 people x 2 devices as 46 clients",
        "GitHub GeoTecINIT/sp-sw-har-dataset",
        _phone_and_watch,
    ),
    "spoken_digits": Public(
        "spoken digits as log-mel spectra, 6 speakers", "GitHub Jakobovski/free-spoken-digit-dataset", _spoken
    ),
    "uci_har": _HAR,
    "uci_har_10hz": _at(10, _HAR, "uci_har"),
    "uci_har_25hz": _at(25, _HAR, "uci_har"),
    "uci_har_30hz": _at(30, _HAR, "uci_har"),
    "uci_har_100hz": _at(100, _HAR, "uci_har"),
    "utd_mhad_inertial": _INERTIAL,
    "utd_mhad_inertial_10hz": _at(10, _INERTIAL, "utd_mhad_inertial"),
    "utd_mhad_skeleton": _SKELETON,
    "utd_mhad_skeleton_10hz": _at(10, _SKELETON, "utd_mhad_skeleton", 30),
    "watch_exercises": _WATCH,
    "watch_exercises_10hz": _at(10, _WATCH, "watch_exercises"),
    "wiar": Public("Wi-Fi channel state, 16 activities, 3 antenna heights", "GitHub linteresa/WiAR", _wiar),
}
