"""Outputs take their place all at once, whatever interrupts them; inputs are regular files."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest

import neuronsim as np
from neuronsim import api, cli, whole_files
from neuronsim.cli import executing
from neuronsim.errors import (
    FileIsFolder,
    ForbiddenFile,
    InaccessibleFile,
    InvalidArgument,
    InvalidModel,
    MissingFile,
)
from neuronsim.hlo import proto
from neuronsim.whole_files import read_bytes, replacing, write_text
from tests.support.commands import Commands
from tests.support.places import DATA, MODEL

OLD = b"the old content"
LARGE = numpy.ones((300, 100), numpy.float32)

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]


def command(*words: str) -> Callable[[str], None]:
    def write(path: str) -> None:
        if cli.main([*words, path]) == 2:
            raise InaccessibleFile("see standard error")

    return write


# Everything that writes a file, by the ending of its name.
WRITERS: dict[str, tuple[str, Callable[[str], None]]] = {
    "save": (".npy", lambda p: np.save(p, LARGE)),
    "savez": (".npz", lambda p: np.savez(p, x=LARGE)),
    "savez_compressed": (
        ".npz",
        lambda p: np.savez_compressed(p, x=numpy.random.default_rng(0).random(9000)),
    ),
    "savetxt": (".txt", lambda p: np.savetxt(p, LARGE)),
    "program.save": (".nsim", lambda p: np.compile(MODEL, auto_cast="none").save(p)),
    "proto.write": (".pb", lambda p: proto.write(proto.read(MODEL), p)),
    "tune": (".json", command("tune", MODEL, "--data", DATA, "--json")),
    "run": (".npz", command("run", MODEL, "--inputs", DATA, "--output")),
    "compile": (".nsim", command("compile", MODEL, "--output")),
    "calibrate": (".json", command("calibrate", MODEL, "--data", DATA, "--output")),
    "plan": (".json", command("plan", MODEL, "--auto-cast", "all", "--output")),
}
writers = pytest.mark.parametrize("writer", WRITERS)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@writers
def test_a_full_disk_leaves_the_old_file_and_no_other(writer: str, tmp_path: Path) -> None:
    ending, write = WRITERS[writer]
    old, new = tmp_path / f"old{ending}", tmp_path / f"new{ending}"
    old.write_bytes(OLD)
    for path in (old, new):
        with full_disk(700), pytest.raises(InaccessibleFile):
            write(str(path))
    assert [p.name for p in tmp_path.iterdir()] == [old.name]
    assert old.read_bytes() == OLD


@writers
def test_a_full_device_is_an_error_through_a_link_too(writer: str, tmp_path: Path) -> None:
    ending, write = WRITERS[writer]
    link = tmp_path / f"link{ending}"
    link.symlink_to("/dev/full")
    with pytest.raises(InaccessibleFile):
        write(str(link))
    assert link.is_symlink()
    assert stat.S_ISCHR(link.stat().st_mode)


@writers
def test_links_stay_and_their_targets_are_replaced_or_made(writer: str, tmp_path: Path) -> None:
    ending, write = WRITERS[writer]
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("old", "new"):
        (tmp_path / f"{name}{ending}").symlink_to(f"folder/second-{name}")
        (folder / f"second-{name}").symlink_to(folder / f"target-{name}")
    (folder / "target-old").write_bytes(OLD)
    for name in ("old", "new"):
        write(str(tmp_path / f"{name}{ending}"))
        assert (tmp_path / f"{name}{ending}").is_symlink()
        assert (folder / f"second-{name}").is_symlink()
        assert len((folder / f"target-{name}").read_bytes()) > 200
    assert len(list(folder.iterdir())) == 4


@pytest.fixture(params=[True, False], ids=["O_TMPFILE", "named"])
def unnamed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unnamed files, and none, as on file systems that have no O_TMPFILE."""
    if not request.param:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)


@pytest.mark.usefixtures("unnamed")
def test_an_interrupt_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "y"
    for expected in ([], ["y"]):
        with pytest.raises(KeyboardInterrupt):
            interrupted_writer(path)
        assert [p.name for p in tmp_path.iterdir()] == expected
        write_text(path, OLD.decode())
    assert path.read_bytes() == OLD


def interrupted_writer(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"half" * 50_000)
        raise KeyboardInterrupt


def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    code = f"""
        import os, signal
        from neuronsim.whole_files import replacing
        with replacing({str(tmp_path / "y")!r}) as file:
            file.write(b"half" * 50_000)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert python(code).returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("unnamed")
def test_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "y"
    contents = [bytes([n]) * (100_000 + n) for n in range(4)]
    write_text(path, "first")
    seen: set[bytes] = set()

    def write(content: bytes) -> None:
        for _ in range(20):
            with replacing(path) as file:
                file.write(content[:50_000])
                file.write(content[50_000:])
            seen.add(path.read_bytes())

    threads = [threading.Thread(target=write, args=(c,)) for c in contents]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen <= set(contents)
    assert path.read_bytes() in contents
    assert [p.name for p in tmp_path.iterdir()] == ["y"]


@pytest.mark.usefixtures("unnamed")
def test_permissions_stay_and_new_files_have_the_umasks(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for name, mode in (("new", 0o640), ("a", 0o604), ("b", 0o777), ("c", 0o600)):
            path = tmp_path / name
            if name != "new":
                path.touch()
                path.chmod(mode)
            write_text(path, "x")
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_stay_whoever_writes(tmp_path: Path) -> None:
    theirs, folder = tmp_path / "theirs", tmp_path / "folder"
    theirs.touch()
    os.chown(theirs, 1234, 2345)
    write_text(theirs, "root's")
    assert (theirs.stat().st_uid, theirs.stat().st_gid) == (1234, 2345)

    # Another user's file, and one in a folder that takes no new file, are written over.
    folder.mkdir(mode=0o755)
    for path in (theirs, folder / "in"):
        path.touch()
        path.chmod(0o666)
    reachable(tmp_path)
    tmp_path.chmod(0o777)
    code = f"""
        import os
        from neuronsim.errors import NeuronSimError
        from neuronsim.whole_files import replacing, write_text
        os.setgid(65534), os.setuid(65534)
        write_text({str(theirs)!r}, "x" * 9)
        write_text({str(folder / "in")!r}, "y" * 9)
        for path in ({str(folder / "new")!r}, {str(tmp_path / "protected")!r}):
            try:
                write_text(path, "no")
            except PermissionError as error:
                assert isinstance(error, NeuronSimError)
            else:
                raise AssertionError(path)
        try:
            with replacing({str(theirs)!r}) as file:
                file.write(b"half")
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    """
    (tmp_path / "protected").write_text("root's")
    found = python(code)
    assert found.stderr == ""
    assert (theirs.stat().st_uid, theirs.read_text()) == (1234, "x" * 9)
    assert ((folder / "in").stat().st_uid, (folder / "in").read_text()) == (0, "y" * 9)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "protected", "theirs"]


def reachable(path: Path) -> None:
    for p in (path, *path.parents):
        if p.stat().st_uid == os.geteuid() and p != Path("/"):
            p.chmod(p.stat().st_mode | 0o011)


def python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        **{"capture_output": True, "text": True, "timeout": 60, "check": False, **options},
    )


def test_standard_output_and_pipes_are_written_straight(tmp_path: Path) -> None:
    log, fifo = tmp_path / "log", tmp_path / "fifo"
    log.write_text("before\n")
    code = """
        from neuronsim.whole_files import write_text
        write_text("/dev/stdout", "one\\n")
        write_text("/proc/self/fd/1", "two\\n")
        write_text("/dev/null", "three\\n")
    """
    with log.open("a") as file:
        assert python(code, capture_output=False, stdout=file).returncode == 0
    assert log.read_text() == "before\none\ntwo\n"
    assert python(code).stdout == "one\ntwo\n"

    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()))
    reader.start()
    fifo.with_name("link.npz").symlink_to(fifo)
    np.savez(fifo.with_name("link.npz"), x=LARGE)
    reader.join(10)
    (tmp_path / "copy.npz").write_bytes(found[0])
    assert np.load(tmp_path / "copy.npz")["x"].tobytes() == LARGE.tobytes()
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (".", FileIsFolder),
        ("folder", FileIsFolder),
        ("new/", MissingFile),
        ("missing/y", MissingFile),
        ("file/y", InaccessibleFile),
        ("f" * 300, InaccessibleFile),
        ("", MissingFile),
        ("a\0b", InaccessibleFile),
        ("\ud800", InaccessibleFile),
        ("loop", InaccessibleFile),
        ("into folder", FileIsFolder),
    ],
)
def test_places_where_nothing_can_be_written(
    name: str, error: type[InaccessibleFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    Path("loop").symlink_to("loop")
    Path("into folder").symlink_to("folder")
    before = sorted(os.listdir())
    for write in (
        whole_files.check_writable,
        lambda p: write_text(p, "x"),
        lambda p: np.compile(MODEL, auto_cast="none").save(p),
        lambda p: proto.write(proto.read(MODEL), p),
    ):
        with pytest.raises(error, match="cannot write"):
            write(name)
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("name", ["old", "new", "fifo"])
def test_errors_of_the_block_are_not_those_of_the_output(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    (tmp_path / "old").write_bytes(OLD)
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)

    def write_half_and_fail(error: OSError) -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise error

    for error in (OSError(5, "a device"), MissingFile("cannot read 'x'"), TimeoutError("a socket")):
        with pytest.raises(type(error)) as caught:
            write_half_and_fail(error)
        assert caught.value is error
    os.close(reader)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "old"]
    assert (tmp_path / "old").read_bytes() == OLD


def test_errors_of_writing_name_the_output_inside_the_block_too(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    with full_disk(700), pytest.raises(InaccessibleFile), replacing(path) as file:  # noqa: PT012
        with pytest.raises(InaccessibleFile, match=f"cannot write '{path}'"):
            file.write(bytes(1 << 20))
        file.write(bytes(1 << 20))
    for written in (b"x", bytes(1 << 20)):
        with pytest.raises(InaccessibleFile, match="'/dev/full'"), replacing("/dev/full") as file:
            file.write(written)


def test_a_text_that_is_no_unicode_is_refused_before_its_file_is_touched(tmp_path: Path) -> None:
    path, fifo = tmp_path / "old", tmp_path / "fifo"
    path.write_bytes(OLD)
    os.mkfifo(fifo)  # nobody reads: opening it would wait
    for p in (path, fifo):
        with pytest.raises(InvalidArgument, match=r"cannot write .*no character of Unicode"):
            write_text(p, "a\ud800")
    assert path.read_bytes() == OLD


def test_hard_links_keep_the_old_content(tmp_path: Path) -> None:
    path, other = tmp_path / "one", tmp_path / "other"
    path.write_bytes(OLD)
    other.hardlink_to(path)
    write_text(path, "new")
    assert (path.read_text(), other.read_bytes()) == ("new", OLD)


def test_checking_an_output_changes_nothing(tmp_path: Path) -> None:
    link, fifo = tmp_path / "link", tmp_path / "fifo"
    link.symlink_to("absent")
    os.mkfifo(fifo)
    for path in (link, fifo, tmp_path / "new"):
        whole_files.check_writable(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "link"]


def test_interrupted_commands_say_what_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    path = str(tmp_path / "y.npz")
    monkeypatch.setattr(executing, "print_observed", interrupt)  # when the file is there
    words = ("run", MODEL, "--inputs", DATA, "--output", path)
    status, _, err = commands.run(*words)
    assert (status, os.listdir(tmp_path)) == (130, ["y.npz"])
    assert "nothing was written" not in err
    assert path in err.replace("\n", "")
    monkeypatch.setattr(executing, "run_batches", interrupt)
    status, _, err = commands.run(*words)
    assert (status, err) == (130, "neuronsim: interrupted; nothing was written\n")
    monkeypatch.setattr(api, "tune", interrupt)
    journal = tmp_path / "journal"
    words = ("tune", MODEL, "--data", DATA, "--journal", str(journal))
    assert commands.run(*words)[2] == "neuronsim: interrupted; nothing was written\n"
    journal.write_text("")
    assert "what ended before is in" in " ".join(commands.run(*words)[2].split())


# ---- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "fifo", "empty", "/dev/zero", "zeros", "missing"])
@pytest.mark.parametrize(
    "words",
    [
        ("plan", "INPUT"),
        ("run", "INPUT.nsim", "--inputs", DATA, "--output", "OUT.npz"),
        ("run", MODEL, "--inputs", "INPUT", "--output", "OUT.npz"),
        ("plan", MODEL, "--plan", "INPUT"),
        ("plan", MODEL, "--policy", "INPUT.toml"),
        ("plan", MODEL, "--policy", "INPUT.json"),
        ("plan", MODEL, "--calibration", "INPUT"),
        ("compile", MODEL, "--target", "inf1", "--io-config", "INPUT", "--output", "OUT.nsim"),
        ("diff", "INPUT", "INPUT"),
    ],
    ids=lambda words: " ".join(words).replace(MODEL, "M").replace(DATA, "D"),
)
def test_inputs_that_are_no_files_are_refused_at_once(
    kind: str, words: tuple[str, ...], tmp_path: Path, commands: Commands
) -> None:
    def fill(word: str) -> str:
        return word.replace("INPUT", str(tmp_path / "input")).replace("OUT", str(tmp_path / "out"))

    for word in words:
        if "INPUT" not in word or (path := Path(fill(word))).exists():
            continue
        if kind == "folder":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "/dev/zero":
            path.symlink_to(kind)
        elif kind != "missing":
            path.write_bytes(bytes(5_000_000 if kind == "zeros" else 0))
    signal.setitimer(signal.ITIMER_PROF, 5)  # ends the process
    try:
        commands.refused(*map(fill, words))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    assert not list(tmp_path.glob("out*"))


def test_errors_of_reading_are_ours(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, error in (
        (tmp_path, FileIsFolder),
        (tmp_path / "none", MissingFile),
        (tmp_path / "fifo", InaccessibleFile),
        ("/dev/zero", InaccessibleFile),
        ("a\0b", InaccessibleFile),
    ):
        for read in (read_bytes, np.load, np.loadtxt, np.genfromtxt):
            with pytest.raises(error, match="cannot read"):
                read(path)
    (tmp_path / "fifo").rename(tmp_path / "fifo.nsim")
    with pytest.raises(InvalidModel, match="it is no regular file"):
        np.load(tmp_path / "fifo.nsim")
    assert issubclass(ForbiddenFile, PermissionError)
