"""What keeps a machine from running a sandbox, each cause with its cure, as data (R66).

Pure: `causes` reads what bubblewrap said of a trial and what the kernel's settings are; a
`Lack` names a cause, what a person does about it, and the steps by which root can.
"""

from __future__ import annotations

from sandbox.linux.landlock import SCOPE_ABI
from sandbox.linux.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CLONE = "kernel/unprivileged_userns_clone"
LIMIT = "user/max_user_namespaces"
APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
SECCOMP = "kernel/seccomp/actions_avail"
SETTINGS = (CLONE, LIMIT, APPARMOR, SECCOMP)
"""Files of /proc/sys that tell of a cause; one that this kernel hasn't is None."""

SYSCTL_FILE = "/etc/sysctl.d/60-lnk-sandbox.conf"
PROFILE_FILE = "/etc/apparmor.d/lnk-bwrap"
"""A name of our own: a distribution's profile for bwrap, where it has one, stays as it is."""
NAMESPACES = 15000


class Step(Value):
    """One command that root runs."""

    argv: tuple[str, ...]
    """The program by its name alone: it is looked for in the system's folders."""
    text: str = ""
    """Its standard input."""
    fails: str = ""
    """What it means that it failed; "" where that doesn't matter."""


class Lack(Value):
    """One thing that keeps a sandbox from being made, and what to do about it."""

    cause: str
    cure: str
    steps: tuple[Step, ...] = ()
    """By which root can cure it; none where only the person can."""
    doing: str = ""
    """What the steps do, in words."""

    def __str__(self) -> str:
        return f"{self.cause}: {self.cure}"


def bubblewrap(said: str) -> Lack:
    """Return what to do where bubblewrap is missing or too old; said: how it was refused."""
    cause, _, cure = said.partition(": ")
    install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "bubblewrap")
    steps = (
        Step(("apt-get", "update", "-qq")),  # an old list may do: the next step decides
        Step(install, fails="apt could not install bubblewrap"),
    )
    return Lack(cause, cure, steps, "installing bubblewrap by apt")


def by_hand(lack: Lack) -> Lack:
    """Return a lack that nothing here may cure: sudo asks for a password."""
    cure = lack.cure
    if lack.steps and lack.steps[-1].argv[0] == "apt-get":
        cure = "run `sudo apt-get install bubblewrap`."
    return Lack(f"{lack.cause}, and sudo asks for a password", cure)


def causes(
    said: str, settings: Mapping[str, str | None], bwrap: str = "/usr/bin/bwrap"
) -> list[Lack]:
    """Return what kept a sandbox from being made; never none.

    said: bubblewrap's words.  settings: those of SETTINGS as they are, None for one that
    this kernel doesn't have; one that wasn't looked at is left out.  bwrap: its path.
    """
    found = []
    if settings.get(CLONE) == "0":
        found.append(_sysctl("user namespaces are off for ordinary users", CLONE, "1"))
    if settings.get(LIMIT) == "0":
        cause = "this kernel's limit of user namespaces is 0"
        found.append(_sysctl(cause, LIMIT, str(NAMESPACES)))
    if "setting up uid map: Permission denied" in said or "RTM_NEWADDR" in said:
        found.append(apparmor(bwrap))
    if SECCOMP in settings and settings[SECCOMP] is None:
        found.append(NO_SECCOMP)
    if found:
        return found
    for words, lack in SAID:
        if words in said:
            return [lack]
    if "namespace" in said:
        return [apparmor(bwrap) if settings.get(APPARMOR) == "1" else CONTAINER]
    last = (said.strip().splitlines() or ["it gave no reason."])[0]
    return [Lack("the trial sandbox did not start", last)]


def notes(landlock: int) -> list[str]:
    """Return what this kernel's Landlock leaves thinner; a sandbox runs all the same."""
    if landlock == 0:
        return [
            "this kernel has no Landlock, or it is switched off: a list of programs "
            "([commands] only) can't be held, and with the machine's network its abstract sockets "
            "stay open; start with lsm=landlock,… on the kernel's command line (Linux 5.13)."
        ]
    if landlock < SCOPE_ABI:
        return [
            f"this kernel's Landlock is ABI {landlock}: with the machine's network its abstract "
            "sockets stay open; Linux 6.12 brought what closes them."
        ]
    return []


def apparmor(bwrap: str) -> Lack:
    """Say how Ubuntu's AppArmor is told that bubblewrap may make user namespaces."""
    profile = profile_of(bwrap)
    quoted = profile.replace("\n", "\\n")
    return Lack(
        "AppArmor keeps bubblewrap from using its user namespace",
        f"run `printf '{quoted}' | sudo tee {PROFILE_FILE} && "
        f"sudo apparmor_parser -r {PROFILE_FILE}`, or `lnk sandbox ready --yes`, which does.",
        (
            Step(("tee", PROFILE_FILE), profile, f"{PROFILE_FILE} can't be written"),
            Step(("apparmor_parser", "-r", PROFILE_FILE), fails="AppArmor took no profile"),
        ),
        "adding an AppArmor profile for bubblewrap",
    )


def profile_of(bwrap: str) -> str:
    """Return an AppArmor profile that changes nothing for bubblewrap but user namespaces."""
    return (
        "abi <abi/4.0>,\ninclude <tunables/global>\n"
        f"profile lnk-bwrap {bwrap} flags=(unconfined) {{\n  userns,\n}}\n"
    )


def _sysctl(cause: str, setting: str, value: str) -> Lack:
    line = f"{setting.replace('/', '.')}={value}"
    return Lack(
        cause,
        f"run `sudo sysctl -w {line}`, and put the setting in /etc/sysctl.d/ to keep it; "
        "`lnk sandbox ready --yes` does both.",
        (
            Step(("sysctl", "-w", line), fails=f"sysctl could not set {line}"),
            Step(("tee", "-a", SYSCTL_FILE), f"{line}\n", f"{SYSCTL_FILE} can't be written"),
        ),
        f"setting {line}, now and at each boot",
    )


NO_SECCOMP = Lack(
    "this kernel takes no seccomp filter", "use one built with CONFIG_SECCOMP_FILTER."
)
CONTAINER = Lack(
    "new namespaces are refused here, as most containers refuse them",
    "start the container with --security-opt seccomp=unconfined, or run on the machine itself.",
)
SAID: tuple[tuple[str, Lack], ...] = (
    (
        "mount proc",
        Lack(
            "parts of /proc are masked, as in most containers, and a sandbox needs its own",
            "start the container with --security-opt systempaths=unconfined (docker) or "
            "--security-opt unmask=ALL (podman).",
        ),
    ),
    ("SECCOMP", NO_SECCOMP),
    ("seccomp", NO_SECCOMP),
    (
        "does not support user namespaces",
        Lack("this kernel has no user namespaces", "use one built with CONFIG_USER_NS."),
    ),
    (
        "No space left on device",
        Lack(
            "as many user namespaces as this kernel allows are used, or nested",
            "end what uses them, or raise user.max_user_namespaces by sysctl.",
        ),
    ),
)
"""What bubblewrap says, and what that means; the first that fits."""
