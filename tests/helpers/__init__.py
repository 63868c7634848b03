"""What several test files share. Import the module you need, for example `from helpers.fleets import fleet_of`.

| module | what it gives |
|---|---|
| `fleets` | a small local fleet for a method, with made-up samples |
| `toys` | a tiny method for the tests of the engines |
| `pairs` | fleets of a device and its access point, for Centaur and its baselines |
| `short_runs` | short runs of any method, for the tests of the Flower engine and of deployments |
| `deployment` | a deployment of real processes on this machine |
| `boards`, `board_stages` | the firmware's client as a process or emulated, and its stages next to PyTorch's |
| `packages` | a package with entry points, as pip would install it |
| `made_runs` | run folders written by hand, for reports |
| `browser` | a real Chromium |
"""
