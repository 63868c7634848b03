"""How the platform builds: SCons runs this."""

from SCons.Script import Default, DefaultEnvironment  # type: ignore[import-not-found]

env = DefaultEnvironment()
tools = {"AR": "ar", "AS": "as", "CC": "gcc", "CXX": "g++", "RANLIB": "ranlib", "SIZETOOL": "size"}
env.Replace(PROGNAME="program", PROGSUFFIX=".elf", **{name: f"arm-none-eabi-{tool}" for name, tool in tools.items()})
core = ["-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-mthumb"]
env.Append(
    CCFLAGS=[*core, "-O2", "-ffreestanding", "-ffunction-sections"], LINKFLAGS=[*core, "-nostdlib"], LIBS=["gcc"]
)
Default(env.BuildProgram())
