"""Shows what workers write into their files, line by line, each behind the header of its rank.

One thread for all files of one destination. A line is never torn, lost or doubled: part of one waits for its end, at most
a second or 64 KiB; what is written goes out at least once an interval.
"""

import errno
import os
import select
import stat
import threading
import time

from herdsman._lazy import LazyLogger, lazy_names

__all__ = ["TailLog", "tail_logfile"]

_log = LazyLogger(__name__)
__getattr__ = lazy_names(__name__)

#: Bytes read from one file before the next one has its turn.
_READ = 1 << 20
#: How much of a line, and for how many seconds, is held back for its end.
_PARTIAL_BYTES = 64 * 1024
_PARTIAL_SECONDS = 1.0
#: Why a file is not opened now, and perhaps later: it is not there, or no descriptor is left.
_PASSING = (errno.ENOENT, errno.EMFILE, errno.ENFILE)


def _accept(line):
    return True


class _File:
    """One file that is followed."""

    def __init__(self, header, path):
        self.header = header
        self._path = path
        self._descriptor = None
        self._offset = 0
        self._held = b""
        self._held_since = 0.0

    def text(self):
        """The next whole lines, decoded, without headers; empty when there are none now, None when nothing was read."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                return None
        data = os.read(self._descriptor, _READ)
        if not data:
            self._look_for_truncation()
            if self._held and time.monotonic() - self._held_since >= _PARTIAL_SECONDS:
                return self._take_held()
            return None
        self._offset += len(data)
        data = self._held + data
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        held = data[cut:]
        if not self._held or cut:
            self._held_since = time.monotonic()
        self._held = held
        if len(held) >= _PARTIAL_BYTES:
            return _decode(data[:cut]) + self._take_held()
        return _decode(data[:cut])

    def rest(self):
        """What is held of a line that will have no end; it is shown as a line."""
        return self._take_held(last=True) if self._held else ""

    def _take_held(self, last=False):
        held, self._held = self._held, b""
        if not last:
            # A character that is cut waits for the rest of it.
            cut = _cut_character(held)
            held, self._held = held[:cut], held[cut:]
            if not held:
                return ""
        text = _decode(held)
        return text if text.endswith("\n") else text + "\n"

    def _look_for_truncation(self):
        if self._offset and os.fstat(self._descriptor).st_size < self._offset:
            self._offset = os.lseek(self._descriptor, 0, os.SEEK_SET)

    def close(self):
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _cut_character(data):
    """How many bytes there are before a character that the end of the data cuts."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if length > back else len(data)
        if byte < 0x80:
            break
    return len(data)


def _decode(data):
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.decode("utf-8", "replace")


def _with_headers(text, header, wanted):
    """The lines of a text behind the header, those that are wanted."""
    if wanted is _accept:
        return header + text[:-1].replace("\n", "\n" + header) + "\n"
    lines = (line + "\n" for line in text[:-1].split("\n"))
    return "".join(header + line for line in lines if wanted(line))


def _writer(dst):
    """How text reaches the destination, at once and whole.

    Python's own text streams are no good for two threads before 3.13 (they lose and double lines); the bytes below them
    are. What is not quite such a stream is written to as it is.
    """
    import io

    buffer = getattr(dst, "buffer", None)
    plain = type(dst) is io.TextIOWrapper and "write" not in vars(dst)
    if plain and dst.encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        # The second is what a stream has below it under `python -u`.
        put = {io.BufferedWriter: _put_buffered, io.FileIO: _put_raw}.get(type(buffer))
        if put is not None:
            into_pipe = stat.S_ISFIFO(os.fstat(dst.fileno()).st_mode)

            def write(text):
                data = text.encode("utf-8", "replace")
                for piece in _pieces(data) if into_pipe else (data,):
                    put(buffer, piece)

            return write

    flush = getattr(dst, "flush", None)

    def write(text):
        dst.write(text)
        if flush is not None:
            flush()

    return write


def _put_buffered(buffer, data):
    buffer.write(data)
    buffer.flush()


def _put_raw(raw, data):
    view = memoryview(data)
    while view:
        view = view[raw.write(view) or 0 :]


def _pieces(data):
    """Whole lines in pieces that the kernel puts into a pipe undivided, whoever else writes to it."""
    at = 0
    while at < len(data):
        end = at + select.PIPE_BUF
        if end < len(data):
            cut = data.rfind(b"\n", at, end) + 1
            # A line that is longer than that cannot be kept whole.
            end = cut or (data.find(b"\n", end) + 1 or len(data))
        yield data[at:end]
        at = end


def _follow(files, dst, finished, interval_sec, wanted):
    """Shows the files until `finished` is set and all they hold was shown. A file that is absent then is left."""
    write = _writer(dst)

    def show(file, text):
        if text:
            text = _with_headers(text, file.header, wanted)
        if text:
            write(text)

    try:
        while True:
            # Before the look: what was written before the end is seen after it.
            last = finished.is_set()
            busy = False
            for file in files:
                text = file.text()
                if text is not None:
                    busy = True
                    show(file, text)
            if not busy:
                if last:
                    break
                finished.wait(interval_sec)
        for file in files:
            show(file, file.rest())
    finally:
        for file in files:
            file.close()


def tail_logfile(header, file, dst, finished, interval_sec, log_line_filter=None):
    """Shows one file in the calling thread until the event `finished` is set."""
    _follow([_File(header, file)], dst, finished, interval_sec, log_line_filter or _accept)


class TailLog:
    """Shows the files `log_files` (index to path) on `dst` while they grow. They may come into being later.

    Each line gets the header `[{name}{index}]:`, or what `log_line_prefixes` has for the index. Lines for which
    `log_line_filter` is false are left out. Order is kept within a file, not between files.
    """

    def __init__(
        self,
        name,
        log_files,
        dst,
        log_line_prefixes=None,
        interval_sec=0.1,
        log_line_filter=_accept,
    ):
        self._name = name
        self._log_files = log_files
        self._dst = dst
        self._log_line_prefixes = log_line_prefixes
        self._interval_sec = interval_sec
        self._log_line_filter = log_line_filter
        self._finished = threading.Event()
        self._thread = None
        self._error = None
        self._stopped = False

    def start(self):
        """Starts following; nothing where there are no files or no destination. Returns itself."""
        if not self._log_files or not self._dst or self._thread is not None:
            return self
        prefixes = self._log_line_prefixes or {}
        files = [
            _File(prefixes.get(index, f"[{self._name}{index}]:"), path) for index, path in self._log_files.items()
        ]
        self._thread = threading.Thread(
            target=self._run, args=(files,), name=f"{type(self).__qualname__}_{self._name}", daemon=True
        )
        self._thread.start()
        return self

    def _run(self, files):
        try:
            _follow(files, self._dst, self._finished, self._interval_sec, self._log_line_filter)
        except Exception as error:
            self._error = error

    def stop(self):
        """Shows what was written until now, and ends. Errors are logged. Again: nothing."""
        self._finished.set()
        if self._thread is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            _log.error("error in log tailer for %s. %s", self._name, type(error).__qualname__, exc_info=error)
        self._stopped = True

    def stopped(self):
        """Whether it was stopped."""
        return self._stopped
