# Runs inside a sandbox around a Python program, as node.cjs does around JavaScript; see there.
import json, linecache, os, struct, sys, time, traceback


def _read(count):
    parts = b""
    while len(parts) < count:
        part = os.read(3, count - len(parts))
        if not part:
            os._exit(0)
        parts += part
    return parts


def _send(frame):
    body = json.dumps(frame, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    data = struct.pack("<I", len(body)) + body
    while data:
        data = data[os.write(3, data):]


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # the program has closed it


def _fail(name, message, stack=""):
    _flush()
    _send({"kind": "error", "name": name[:100], "message": message[:4000], "stack": stack[:2000]})


def _reporter():
    last = [0.0]

    def progress(fraction, detail=""):
        now = time.monotonic()
        if now - last[0] < 0.1:
            return
        last[0] = now
        _send({"kind": "progress", "fraction": float(fraction), "detail": str(detail)[:500]})

    return progress


def _own_frames(error):
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "program.py"]
    return "".join(traceback.format_list(frames[-5:]))


def _left(code):
    """The exit code of a program that has left with `code`, as the interpreter would give it."""
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    _flush()
    return code & 0xFF


def _run(job):
    code = job["code"]
    linecache.cache["program.py"] = (len(code), None, code.splitlines(True), "program.py")
    scope = {"__name__": "__main__", "input": job.get("input"), "progress": _reporter(), "result": None}
    try:
        exec(compile(code, "program.py", "exec"), scope)
    except SystemExit as leave:
        if leave.code not in (None, 0):
            return _left(leave.code)
    except BaseException as error:
        _fail(type(error).__name__, str(error), _own_frames(error))
        return 1
    _flush()
    try:
        _send({"kind": "result", "value": scope.get("result")})
    except (TypeError, ValueError, RecursionError) as error:
        _fail(type(error).__name__, "the result is no JSON value: %s" % error)
        return 1
    return 0


_send({"kind": "ready"})
_job = json.loads(_read(struct.unpack("<I", _read(4))[0]))
_send({"kind": "began"})
os.environ.update(_job.get("env") or {})
sys.path.insert(0, os.getcwd())
os._exit(_run(_job))
