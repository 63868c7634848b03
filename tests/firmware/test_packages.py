"""The four packages: CMake builds for real; Arduino, PlatformIO and Zephyr against small stands-in for their cores.

No Arduino core for the boards, no Zephyr and no PlatformIO platform can be had from the package registries that CI
reaches. The stands-in (tests/firmware/stubs) declare what the ports call, with the vendors' signatures.
docs/firmware/porting.md says what was built with the real ones, by hand.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from potluck.errors import Missing
from potluck.firmware.boards import BOARDS
from potluck.firmware.image import linker_script
from potluck.firmware.toolchain import CLIENT, CORE, arm_compiler, needs, sources

STUBS = Path(__file__).parent / "stubs"
TOP = sources()


def run(*words: str | Path, cwd: Path) -> None:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake, which is not on this machine")
def test_the_cmake_package_is_installed_and_found(tmp_path: Path) -> None:
    """From a clean copy: build, install, and use from another project by find_package."""
    shutil.copytree(TOP, tmp_path / "firmware")
    run(
        "cmake",
        "-S",
        "firmware",
        "-B",
        "one",
        f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'there'}",
        "-DPL_PAGE=2048",
        cwd=tmp_path,
    )
    run("cmake", "--build", "one", "--target", "install", cwd=tmp_path)
    user = tmp_path / "user"
    user.mkdir()
    for name in ("posix.c", "main.c", "nor.h"):
        shutil.copy(TOP / "port" / name, user)
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(Potluck 0.2 REQUIRED)\n"
        "add_executable(user posix.c main.c)\ntarget_compile_definitions(user PRIVATE PL_ARENA=9000)\n"
        "target_link_libraries(user Potluck::client)\n"
    )
    run("cmake", "-S", "user", "-B", "two", f"-DCMAKE_PREFIX_PATH={tmp_path / 'there'}", cwd=tmp_path)
    run("cmake", "--build", "two", cwd=tmp_path)
    done = subprocess.run([str(tmp_path / "two" / "user")], input=b"", capture_output=True, timeout=10, check=False)
    assert done.returncode == 0


CORES = {
    "ESP32-S3 (Xtensa)": ["-DARDUINO_ARCH_ESP32", "-mlongcalls"],
    "Nano 33 BLE (mbed)": ["-DARDUINO_ARCH_MBED", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"],
    "Raspberry Pi Pico (RP2040)": ["-DARDUINO_ARCH_RP2040", "-mcpu=cortex-m0plus"],
    "another core": ["-mcpu=cortex-m3", "-Wno-cpp"],
}


@pytest.mark.parametrize("core", CORES)
def test_the_arduino_library_compiles_with_its_examples(tmp_path: Path, core: str) -> None:
    """Every file of src/ and every example, by the cross compiler, against a stand-in for Arduino's core."""
    try:
        gcc = needs("xtensa-lx106-elf-gcc", "the test") if "Xtensa" in core else arm_compiler()
    except Missing as missing:
        pytest.skip(str(missing))
    gxx = gcc.removesuffix("gcc") + "g++"
    flags = [
        *([] if "Xtensa" in core else ["-mthumb"]),
        "-Os",
        "-DARDUINO=10819",
        f"-I{TOP / 'src'}",
        f"-I{STUBS / 'arduino'}",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    flags += CORES[core]
    for source in sorted((TOP / "src").glob("*.c")):
        run(
            gcc, "-std=gnu11", *flags, "-ffreestanding", "-c", source, "-o", tmp_path / f"{source.stem}.o", cwd=tmp_path
        )
    plus = ["-std=gnu++14", "-fno-exceptions", "-fno-rtti", "-ffreestanding"]
    run(gxx, *plus, *flags, "-c", TOP / "src" / "arduino" / "port.cpp", "-o", tmp_path / "port.o", cwd=tmp_path)
    for sketch in sorted((TOP / "examples").rglob("*.ino")):
        code = tmp_path / f"{sketch.stem}.cpp"
        code.write_text("#include <Arduino.h>\n" + sketch.read_text())  # as the Arduino builder does
        run(gxx, *plus, *flags, "-c", code, "-o", tmp_path / f"{sketch.stem}.o", cwd=tmp_path)


def test_the_arduino_and_platformio_manifests_name_what_is_there() -> None:
    properties = dict(line.split("=", 1) for line in (TOP / "library.properties").read_text().splitlines() if line)
    assert {
        "name",
        "version",
        "author",
        "maintainer",
        "sentence",
        "paragraph",
        "category",
        "url",
        "architectures",
    } <= set(properties)
    manifest = json.loads((TOP / "library.json").read_text())
    assert manifest["version"] == properties["version"]
    assert (TOP / manifest["build"]["srcDir"] / manifest["headers"]).exists()
    assert (TOP / "src" / properties["includes"]).exists()
    assert "-ffp-contract=off" in manifest["build"]["flags"]


def test_the_platformio_library_builds_and_links(tmp_path: Path) -> None:
    """What its library builder does: the sources and flags of library.json and its own, an archive; then a program."""
    try:
        gcc = arm_compiler()
    except Missing as missing:
        pytest.skip(str(missing))
    manifest = json.loads((TOP / "library.json").read_text())["build"]
    part, place = BOARDS["nrf52832"], TOP / manifest["srcDir"]
    kinds = [pattern.removeprefix("+<").removesuffix(">") for pattern in manifest["srcFilter"]]
    names = sorted(path for kind in kinds for path in place.glob(kind))
    assert {path.stem for path in names} == {*CLIENT, "port"}  # `port` is empty without Arduino
    settings = ["-DPL_ARENA=9000", "-DPL_FLASH=393216", "-DPL_DATA=0x20000u", '-DPL_BOARD="pio"']
    flags = [*CORE, "-O2", "-ffreestanding", *settings, f"-I{TOP / manifest['includeDir']}"]
    for path in names:
        compiler = gcc if path.suffix == ".c" else gcc.removesuffix("gcc") + "g++"
        run(compiler, *flags, *manifest["flags"], "-c", path, "-o", tmp_path / f"{path.stem}.o", cwd=tmp_path)
    run(gcc.removesuffix("gcc") + "ar", "rcs", "lib.a", *(f"{path.stem}.o" for path in names), cwd=tmp_path)
    (tmp_path / "board.ld").write_text(linker_script(part, "board"))
    mine = [TOP / "port" / name for name in ("main.c", "nrf5.c", "startup.c")]
    run(gcc, *flags, *mine, "lib.a", "-nostdlib", "-T", "board.ld", "-lgcc", "-o", "program.elf", cwd=tmp_path)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake, which is not on this machine")
@pytest.mark.parametrize("before", [False, True], ids=["Zephyr 4.4", "before Zephyr 4.4"])
def test_the_zephyr_module_builds(tmp_path: Path, before: bool) -> None:
    """Its own CMakeLists.txt, run: the stand-in has Zephyr's functions for modules."""
    try:
        gcc = arm_compiler()
    except Missing as missing:
        pytest.skip(str(missing))
    flags = "-DZEPHYR_BEFORE_4_4" if before else ""
    words = [
        "-DCMAKE_SYSTEM_NAME=Generic",
        f"-DCMAKE_C_COMPILER={gcc}",
        "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
    ]
    run(
        "cmake",
        "-S",
        STUBS / "zephyr",
        "-B",
        "one",
        *words,
        f"-DMODULE={TOP}",
        f"-DCMAKE_C_FLAGS={flags}",
        cwd=tmp_path,
    )
    run("cmake", "--build", "one", cwd=tmp_path)
    assert (tmp_path / "one" / "libpotluck.a").exists()
    kconfig, module = (TOP / "zephyr" / "Kconfig").read_text(), (TOP / "zephyr" / "module.yml").read_text()
    assert "kconfig: zephyr/Kconfig" in module
    used = set(re.findall(r"CONFIG_(POTLUCK\w*)", "".join(p.read_text() for p in (TOP / "zephyr").glob("[pC]*"))))
    assert used == set(re.findall(r"config (POTLUCK\w*)", kconfig))
