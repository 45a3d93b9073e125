"""The runner: it speaks the protocol of docs/tool-protocol.md.

Jobs come from a BullMQ queue by plain Redis commands, and what becomes of its calls is handed in, signed, for workers
to take. Everything that it has to know is read from the environment (REDIS_URL, REDIS_NAMESPACE, RUNNER_NAME,
RUNNER_KEY, RUNNER_CONCURRENCY).
"""

import base64
import hashlib
import hmac
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from .tool import EFFECTS, Call, Tool, declared, failure, outcome_of

ANNOUNCE_EVERY_S = 2
ANNOUNCED_FOR_MS = 8_000
LOCK_MS = 10_000
FETCH_WAIT_S = 2
GRACE_S = 8
# How long the answer to a question may take before the runner notifies every worker again.
NOTIFY_AGAIN_S = 0.5
# In one step, so that no job gets lost between the two lists.
TAKE_BACKGROUND = """
local taken = redis.call('ZPOPMIN', KEYS[1])[1]
if taken then redis.call('LPUSH', KEYS[2], taken) end
return taken"""


class RedisError(Exception):
    """An error that Redis answered."""


class Redis:
    """One connection, one command at a time. A broken one is opened anew by the next command."""

    def __init__(self, url: str) -> None:
        self._url = urlparse(url)
        self._socket: socket.socket | None = None
        self._reader: Any = None

    def command(self, *parts: Any, timeout: float = 5.0) -> Any:
        try:
            if self._socket is None:
                self._open()
            assert self._socket is not None
            self._socket.settimeout(timeout)
            self._socket.sendall(encode(parts))
            return self._reply()
        except (OSError, EOFError, ValueError):  # the last one: what came is not Redis's protocol
            self.close()
            raise

    def messages(self, channel: str) -> Iterator[str]:
        """What is published from now on, until the connection ends: that raises."""
        self.command("SUBSCRIBE", channel)
        assert self._socket is not None
        self._socket.settimeout(None)
        try:
            while True:
                message = self._reply()
                if isinstance(message, list) and len(message) == 3:
                    yield str(message[2])
        finally:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _open(self) -> None:
        host, port = self._url.hostname or "127.0.0.1", self._url.port or 6379
        connection = socket.create_connection((host, port), timeout=5)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._url.scheme == "rediss":
            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        self._socket = connection
        self._reader = connection.makefile("rb")
        try:
            if self._url.password is not None:
                user = [unquote(self._url.username)] if self._url.username else []
                self.command("AUTH", *user, unquote(self._url.password))
            database = self._url.path.lstrip("/")
            if database not in ("", "0"):
                self.command("SELECT", database)
        except RedisError:
            self.close()  # the next command would run without a user, or in another database
            raise

    def _reply(self) -> Any:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b":":
            return int(rest)
        size = int(rest)
        if size < 0:
            return None
        if kind == b"$":
            data = self._reader.read(size + 2)
            if len(data) < size + 2:
                raise EOFError("Redis closed the connection")
            return data[:-2].decode("utf-8", "replace")
        return [self._reply() for _ in range(size)]


def encode(parts: tuple[Any, ...]) -> bytes:
    items = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"*%d\r\n" % len(items) + b"".join(b"$%d\r\n%s\r\n" % (len(item), item) for item in items)


class Scripts:
    """The scripts of the protocol, by name; their keys are filled in by name as well."""

    def __init__(self) -> None:
        packed = files(__package__) / "scripts.json"
        checkout = Path(__file__).parents[3] / "docs" / "tool-protocol" / "scripts.json"
        self._scripts = json.loads((packed if packed.is_file() else checkout).read_text("utf-8"))

    def call(self, redis: Redis, name: str, keys: dict[str, str], arguments: dict[str, Any]) -> Any:
        script = self._scripts[name]
        given = [keys[key] for key in script["keys"]]
        values = [arguments[argument] for argument in script["arguments"]]
        return redis.command("EVAL", script["lua"], len(given), *given, *values)


class Names:
    """The keys of one deployment."""

    def __init__(self, namespace: str, runner: str) -> None:
        self.namespace = namespace
        self.queue = f"{{{namespace}}}:tools-{runner}"

    def whole(self, name: str) -> str:
        return f"{{{self.namespace}}}:{name}"

    def of_cell(self, session: str, name: str) -> str:
        return f"{{{self.namespace}:{cell_of(session)}}}:{name}"


def cell_of(session: str) -> int:
    """FNV-1a over the characters of a session's name up to a `~`, modulo the number of cells."""
    value = 0x811C9DC5
    for character in session.split("~", 1)[0]:
        value = ((value ^ ord(character)) * 0x01000193) & 0xFFFFFFFF
    return value % 16


def job_of(data: str) -> dict[str, Any] | None:
    """The job in the text, if it is one: others than workers may be able to write to the queue."""
    try:
        job = json.loads(data)
        for name in ("session", "turnId", "callId", "name", "effect", "arguments", "envelope"):
            job[name].encode()  # a text, without half a character
        is_whole = all(isinstance(job[name], int) for name in ("attempt", "deadlineMs"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return job if is_whole and job["effect"] in EFFECTS else None


def kept_of(job: dict[str, Any] | None) -> str:
    """What stays of a call when its job has finished: ids and numbers, a `FinishedCall`; of what is no job nothing."""
    if job is None:
        return "{}"
    names = ("v", "session", "turnId", "callId", "name", "effect", "attempt", "queuedAtMs", "deadlineMs", "traceparent")
    ids = {name: job[name] for name in names if name in job}
    return json.dumps({**ids, "argumentsLength": len(job["arguments"])})


def problem_of_envelope(job: dict[str, Any], runner: str, key: str) -> str | None:
    """What is wrong with the claims of the worker about this job, if anything."""
    payload, _, signature = job["envelope"].partition(".")
    expected = hmac.new(key.encode(), payload.encode(), hashlib.sha256).digest()
    if not hmac.compare_digest(base64url(expected).encode(), signature.encode()):
        return "the signature is wrong"
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    wanted = {
        "runner": runner,
        "tool": job["name"],
        "session": job["session"],
        "turnId": job["turnId"],
        "callId": job["callId"],
        "attempt": job["attempt"],
        "argumentsHash": hashlib.sha256(job["arguments"].encode()).hexdigest(),
    }
    different = [name for name, value in wanted.items() if claims.get(name) != value]
    if different:
        return f"it is about another call ({', '.join(different)})"
    return "it has expired" if claims["expiresAtMs"] < now_ms() else None


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def now_ms() -> int:
    return int(time.time() * 1000)


class Runner:
    """Takes jobs in as many threads as it may run calls at once."""

    def __init__(self, tools: list[Tool], environment: dict[str, str]) -> None:
        self.name = environment.get("RUNNER_NAME", "python")
        self.key = environment["RUNNER_KEY"]
        self.url = environment.get("REDIS_URL", "redis://127.0.0.1:6379")
        self.concurrency = int(environment.get("RUNNER_CONCURRENCY", "4"))
        self.names = Names(environment.get("REDIS_NAMESPACE", "larkline"), self.name)
        self.scripts = Scripts()
        self.tools = {tool.name: tool for tool in tools}
        self.instance = str(uuid.uuid4())
        self.stopping = threading.Event()
        self.superseded = False
        self.began_at_ms = 0  # of Redis; known with the first announcement
        self.running: list[tuple[str, str, Call]] = []
        self.lockless: set[str] = set()

    def serve(self) -> None:
        redis = Redis(self.url)
        try:
            self.announce(redis)
        except (OSError, EOFError, ValueError, RedisError) as error:
            if str(error).startswith(("WRONGPASS", "NOAUTH")):
                raise SystemExit("Redis refuses the user or password in REDIS_URL, or wants one: correct it.") from None
            raise SystemExit(f"Cannot start, is Redis at REDIS_URL running? {error}") from None
        print(f"runner {self.name} offers {', '.join(self.tools)}", flush=True)
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(self.concurrency)]
        for thread in [*threads, threading.Thread(target=self.follow_cancels, daemon=True)]:
            thread.start()
        while not self.stopping.wait(ANNOUNCE_EVERY_S):
            self.guarded(self.announce, redis)
            self.guarded(self.recover, redis)
        self.guarded(self.withdraw, redis)
        ends_at = time.monotonic() + GRACE_S
        for thread in threads:
            thread.join(timeout=max(0, ends_at - time.monotonic()))

    def follow_cancels(self) -> None:
        """Cancels calls of turns that are cancelled. A message that gets lost costs time: the call runs to its end."""
        redis = Redis(self.url)
        while not self.stopping.is_set():
            self.guarded(self.cancel_calls, redis)

    def cancel_calls(self, redis: Redis) -> None:
        for text in redis.messages(self.names.whole(f"cancel:{self.name}")):
            try:
                asked = json.loads(text)
                turn = (asked["session"], asked["turnId"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            for session, turn_id, call in list(self.running):
                if (session, turn_id) == turn:
                    call.cancel()

    def guarded(self, work: Callable[[Redis], Any], redis: Redis) -> Any:
        try:
            return work(redis)
        except (OSError, EOFError, RedisError) as error:
            print(f"Redis: {error}", file=sys.stderr, flush=True)
            time.sleep(0.5)
            return None

    def announce(self, redis: Redis) -> None:
        announcements = [tool.announcement() for tool in self.tools.values()]
        digests = {one["spec"]["name"]: one["digest"] for one in announcements}
        generation = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
        offer = json.dumps(announcements, separators=(",", ":"))
        seconds, micros = redis.command("TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        self.began_at_ms = self.began_at_ms or now_ms
        expires_at_ms = now_ms + ANNOUNCED_FOR_MS
        times = [str(self.began_at_ms), str(expires_at_ms)]
        lines = ["announcement", self.name, self.instance, generation, *times, offer]
        stored = {
            "expiresAtMs": expires_at_ms,
            "beganAtMs": self.began_at_ms,
            "generation": generation,
            "digests": digests,
            "runner": self.name,
            "instance": self.instance,
            "offer": offer,
            "mac": hmac.new(self.key.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest(),
        }
        answer = self.scripts.call(
            redis,
            "announce",
            {
                "instances": self.names.whole(f"runners:{self.name}"),
                "names": self.names.whole("runner-names"),
                "owners": self.names.whole("tool-owners"),
            },
            {
                "instance": self.instance,
                "runner": self.name,
                "json": json.dumps(stored, separators=(",", ":")),
                "ttlMs": ANNOUNCED_FOR_MS,
                "channel": self.names.whole("runners-changed"),
                "base": self.names.whole("runners:"),
            },
        )
        if answer not in ("current", "superseded"):
            raise SystemExit(f"the tools are refused: the name belongs to another runner: {answer}")
        self.superseded = answer == "superseded"

    def withdraw(self, redis: Redis) -> None:
        self.scripts.call(
            redis,
            "withdraw",
            {"instances": self.names.whole(f"runners:{self.name}")},
            {
                "instance": self.instance,
                "runner": self.name,
                "channel": self.names.whole("runners-changed"),
            },
        )

    def recover(self, redis: Redis) -> None:
        """Gives back the jobs of processes that died: they stand among the active ones without a lock."""
        queue = self.names.queue
        active = redis.command("LRANGE", f"{queue}:active", 0, -1)
        lockless = {job_id for job_id in active if not redis.command("EXISTS", f"{queue}:{job_id}:lock")}
        # Who has just taken a job locks it within moments: only the second look of this process decides.
        dead = lockless & self.lockless
        self.lockless = lockless - dead
        for job_id in dead:
            if redis.command("LREM", f"{queue}:active", 1, job_id):
                redis.command("RPUSH", f"{queue}:wait", job_id)

    def work(self) -> None:
        redis = Redis(self.url)
        while not self.stopping.is_set():
            if self.superseded:  # a newer build of this runner takes the calls
                self.stopping.wait(ANNOUNCE_EVERY_S)
                continue
            try:
                job_id = self.guarded(self.take, redis)
                if job_id is not None:
                    self.guarded(lambda connection: self.finish(connection, job_id), redis)
            except Exception:  # no job may end the thread: that would go unnoticed
                traceback.print_exc()

    def take(self, redis: Redis) -> str | None:
        queue = self.names.queue
        job_id = redis.command("LMOVE", f"{queue}:wait", f"{queue}:active", "RIGHT", "LEFT")
        if job_id is None:
            # Calls of background runs, after all others.
            job_id = redis.command("EVAL", TAKE_BACKGROUND, 2, f"{queue}:prioritized", f"{queue}:active")
        if job_id is None:
            job_id = redis.command(
                "BLMOVE", f"{queue}:wait", f"{queue}:active", "RIGHT", "LEFT", FETCH_WAIT_S, timeout=FETCH_WAIT_S + 5
            )
        if job_id is not None:
            redis.command("SET", f"{queue}:{job_id}:lock", self.instance, "PX", LOCK_MS)
        return job_id

    def finish(self, redis: Redis, job_id: str) -> None:
        queue = self.names.queue
        data = redis.command("HGET", f"{queue}:{job_id}", "data")
        job = None if data is None else job_of(data)
        reason = ""
        if job is not None:
            with self.locked(job_id):
                reason = self.answer(redis, job)
        elif data is not None:
            print(f"dropped {job_id}: it is no job", file=sys.stderr, flush=True)
        names = {name: f"{queue}:{name}" for name in ("active", "completed", "failed")}
        self.scripts.call(
            redis,
            "finish_job",
            {**names, "job": f"{queue}:{job_id}", "lock": f"{queue}:{job_id}:lock"},
            {"jobId": job_id, "data": kept_of(job), "queue": queue, "reason": reason},
        )

    def answer(self, redis: Redis, job: dict[str, Any]) -> str:
        """Runs the call and hands its outcome in. Gives why the call has failed, or nothing."""
        tool = self.tools.get(job["name"])
        problem = problem_of_envelope(job, self.name, self.key)
        if problem is not None:
            return self.not_run(redis, job, f"the call is refused: {problem}")
        if tool is not None and job.get("toolDigest", tool.announcement()["digest"]) != tool.announcement()["digest"]:
            return self.not_run(redis, job, "tool_changed: the tool changed while the call waited; it was not run")
        if tool is None:
            return self.not_run(redis, job, f"unknown tool {job['name']}; it was not run")
        if now_ms() >= job["deadlineMs"]:
            return self.not_run(redis, job, "the call was not started before its deadline")
        call = Call(
            f"{job['turnId']}/{job['callId']}", job["deadlineMs"] / 1000, lambda said: self.report(redis, job, said)
        )
        entry = (job["session"], job["turnId"], call)
        self.running.append(entry)
        try:
            reason = self.run_call(redis, job, tool, call)
            return "" if call.cancelled and now_ms() < job["deadlineMs"] else reason
        finally:
            self.running.remove(entry)

    def run_call(self, redis: Redis, job: dict[str, Any], tool: Tool, call: Call) -> str:
        effect = max(tool.effect, job["effect"], key=EFFECTS.index)
        if effect == "idempotent":
            self.hand_in(redis, job, {"kind": "begun", "effect": effect})
        if effect == "once":
            answer = self.may_start(redis, job, effect, call)
            if answer is None:
                return self.not_run(redis, job, "the call was not started: it was cancelled, or its time was over")
            if answer == "started_before":
                return self.deliver(redis, job, failure("outcome unknown: its runner died during the call", unknown=True))
            if answer == "closed":
                self.not_run(redis, job, "the call was already answered")
                return ""
        return self.deliver(redis, job, outcome_of(tool, job["arguments"], call))

    def not_run(self, redis: Redis, job: dict[str, Any], error: str) -> str:
        """Says so, unless another process has started the call: then that one answers, or the deadline does."""
        return self.deliver(redis, job, failure(error), not_run=True)

    def may_start(self, redis: Redis, job: dict[str, Any], effect: str, call: Call) -> str | None:
        """Asks a worker, and waits for its answer while the call is wanted: without one the call does not start."""
        ask = str(uuid.uuid4())
        self.hand_in(redis, job, {"kind": "begun", "effect": effect, "ask": ask})
        key = self.names.of_cell(job["session"], f"begun:{self.name}:{ask}")
        wait_s, notify_at = 0.001, time.monotonic() + NOTIFY_AGAIN_S
        while not call.cancelled:
            answer = self.guarded(lambda connection: connection.command("GET", key), redis)
            if answer is not None:
                return answer
            if time.monotonic() >= notify_at:
                # The same question again gets the same answer: the first one may be lost.
                self.hand_in(redis, job, {"kind": "begun", "effect": effect, "ask": ask})
                notify_at = time.monotonic() + 2
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.5, 0.05)
        # Behind the question in the stream, so it takes back what that may still bring about.
        self.hand_in(redis, job, {"kind": "returned", "ask": ask})
        return None

    @contextmanager
    def locked(self, job_id: str) -> Iterator[None]:
        """Keeps the job's lock alive from a thread of its own."""
        done = threading.Event()
        threading.Thread(target=self.keep_lock, args=(job_id, done), daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def keep_lock(self, job_id: str, done: threading.Event) -> None:
        redis = Redis(self.url)
        key = f"{self.names.queue}:{job_id}:lock"
        while not done.wait(LOCK_MS / 3000):
            # Set anew: it may have run out while Redis was away.
            self.guarded(lambda connection: connection.command("SET", key, self.instance, "PX", LOCK_MS), redis)
        redis.close()

    def deliver(
        self, redis: Redis, job: dict[str, Any], outcome: dict[str, Any], not_run: bool = False
    ) -> str:
        """Answers the call. Gives what Bull Board may show of its failure: the text of an error may hold anything."""
        self.hand_in(redis, job, {"kind": "outcome", "outcome": outcome, **({"notRun": True} if not_run else {})})
        if outcome["ok"]:
            return ""
        return outcome["error"] if not_run else f"{job['name']} failed; its error is in the conversation"

    def report(self, redis: Redis, job: dict[str, Any], said: dict[str, Any]) -> None:
        """Progress and log lines: what gets lost is not said again."""
        self.guarded(lambda connection: self.send(connection, job, said), redis)

    def hand_in(self, redis: Redis, job: dict[str, Any], said: dict[str, Any]) -> None:
        """Reports the call to workers; tries again while Redis is away, up to its deadline: then they have answered it."""
        while self.guarded(lambda connection: self.send(connection, job, said), redis) is None:
            if now_ms() >= job["deadlineMs"]:
                return None

    def send(self, redis: Redis, job: dict[str, Any], said: dict[str, Any]) -> Any:
        about = {name: job[name] for name in ("session", "turnId", "callId", "attempt")}
        digest = hashlib.sha256(job["arguments"].encode()).hexdigest()
        entry = json.dumps(
            {"v": 1, "runner": self.name, **about, "tool": job["name"], "argumentsHash": digest, **said}
        )
        worker = job.get("worker")
        arguments = {
            "entry": entry,
            "mac": hmac.new(self.key.encode(), f"handoff:{entry}".encode(), hashlib.sha256).hexdigest(),
            "ring": json.dumps({"runner": self.name, "cell": cell_of(job["session"])}),
            "workerChannel": self.names.whole(f"handoff:{worker}") if isinstance(worker, str) else "",
            "channel": self.names.whole("handoff"),
        }
        keys = {"handoff": self.names.of_cell(job["session"], f"handoff:{self.name}")}
        return self.scripts.call(redis, "hand_in", keys, arguments)


def take_environment() -> dict[str, str]:
    """The variables of this process. Tools and other processes of its user find no secret there afterwards."""
    taken = dict(os.environ)
    for name in ("RUNNER_KEY", "REDIS_URL"):
        os.environ.pop(name, None)
    for name, value in list(os.environ.items()):
        # A variable that is set anew no longer lies where the kernel put it.
        del os.environ[name]
        os.environ[name] = value
    try:
        # The name of the program is the second field, in parentheses; fields 50 and 51 give the place.
        start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(bytes(end - start))
    except OSError as error:
        print(f"other processes of this user can read the environment: {error}", file=sys.stderr)
    return taken


def run(tools: list[Tool] | None = None) -> None:
    """Offers tools, those that `tool` has declared if absent, until SIGTERM or SIGINT; running calls get 8 s to end."""
    missing = [name for name in ("RUNNER_KEY",) if name not in os.environ]
    if missing:
        raise SystemExit(f"{', '.join(missing)} must be set: see docs/tool-protocol.md")
    runner = Runner(declared if tools is None else tools, take_environment())
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: runner.stopping.set())
    runner.serve()
