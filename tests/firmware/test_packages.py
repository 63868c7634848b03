"""The four packages: CMake builds for real; Arduino, PlatformIO and Zephyr against small stands-in for their cores.

No Arduino core for the boards, no Zephyr and no PlatformIO platform can be had from the package registries that CI
reaches. The stands-in (tests/firmware/stubs) declare what the ports call, with the vendors' signatures.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from potluck.errors import Missing
from potluck.firmware.toolchain import CLIENT, arm_compiler, sources

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
    "Nano 33 BLE (mbed)": ["-DARDUINO_ARCH_MBED", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"],
    "Raspberry Pi Pico (RP2040)": ["-DARDUINO_ARCH_RP2040", "-mcpu=cortex-m0plus"],
    "another core": ["-mcpu=cortex-m3", "-Wno-cpp"],
}


@pytest.mark.parametrize("core", CORES)
def test_the_arduino_library_compiles_with_its_examples(tmp_path: Path, core: str) -> None:
    """Every file of src/ and every example, by the cross compiler, against a stand-in for Arduino's core."""
    try:
        gcc = arm_compiler()
    except Missing as missing:
        pytest.skip(str(missing))
    gxx = gcc.removesuffix("gcc") + "g++"
    flags = [
        "-mthumb",
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


def test_the_zephyr_module_compiles(tmp_path: Path) -> None:
    try:
        gcc = arm_compiler()
    except Missing as missing:
        pytest.skip(str(missing))
    flags = ["-std=gnu11", "-mcpu=cortex-m4", "-mthumb", "-ffreestanding", "-Wall", "-Wextra", "-Werror"]
    flags += [
        f"-I{STUBS / 'zephyr'}",
        f"-I{TOP / 'src'}",
        "-DCONFIG_POTLUCK_ARENA=65536",
        "-DPL_PAGE=4096",
        "-DPL_UNIT=4",
    ]
    run(gcc, *flags, "-c", TOP / "zephyr" / "port.c", "-o", tmp_path / "port.o", cwd=tmp_path)
    names = (TOP / "zephyr" / "CMakeLists.txt").read_text()
    assert "../src/*.c" in names
    assert len(list((TOP / "src").glob("*.c"))) == len(CLIENT)
    assert (TOP / "zephyr" / "module.yml").read_text().count("zephyr/Kconfig") == 1
