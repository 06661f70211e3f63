"""Callers that mean no good: raw bytes, bodies that are too large or too deep, connections that never end.

`attack_http` and `attack_grpc` return the status of every answer, so that a test can say which are allowed.
"""

import contextlib
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import quote, urlsplit

import grpc
import httpx
import psutil
from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rookery.access import OPEN, Access

CONNECTIONS = 200
"""Connections that are opened and say little or nothing."""
CROWD = 1100
"""So many of them are more than the descriptors of a process that may have `DESCRIPTORS`."""
DESCRIPTORS = 1024
LONG_PATHS = ("/", "/api/runs/", "/v1/games/", "/adapters/")
ZEROS = 300 << 20
"""Bytes of a message that compresses to a thousandth."""
NESTED = 200_000
MESSAGES = 40
"""Well-formed messages that are sent to each gRPC method."""

JSON = "Content-Type: application/json\r\n"


def bodies() -> Iterator[tuple[str, bytes]]:
    """Bodies that a JSON parser or a validator could fall over, by name."""
    yield "nested lists", b"[" * NESTED
    yield "nested and closed", b"[" * NESTED + b"]" * NESTED
    yield "nested objects", b'{"a":' * NESTED
    yield "nested items", b'{"items":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    yield "a number of a million digits", b'{"fen": ' + b"9" * 1_000_000 + b"}"
    yield "no numbers", b'{"fen": NaN, "response": -Infinity}'
    yield "many keys", b"{" + b",".join(b'"%d":0' % n for n in range(200_000)) + b"}"
    yield "many items", b'{"items": [' + b"0," * 200_000 + b"0]}"
    yield "one key twice", b'{"fen": "a", "fen": "b"}'
    yield "half a surrogate", rb'{"fen": "\ud800", "response": "\udfff"}'
    yield "not UTF-8", b'{"fen": "\xff\xfe\xc0\x80"}'
    yield "zeros", b"\x00" * 100_000
    yield "a large string", b'{"fen": "' + b"x" * (8 << 20) + b'"}'
    yield "too large", b'{"fen": "' + b"x" * (17 << 20) + b'"}'


def requests(path: str, access: Access, rng: random.Random) -> Iterator[bytes]:
    """What is no request, or hardly one."""
    token = "".join(f"{name}: {value}\r\n" for name, value in access.headers.items())
    host = f"Host: 127.0.0.1\r\n{token}"  # others are refused
    post, get = (f"{verb} {path} HTTP/1.1\r\n{host}".encode() for verb in ("POST", "GET"))
    yield b"\r\n" * 1000
    yield b"GET /\r\n\r\n"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(200)
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500)  # TLS
    yield b"GET /%00%ff%2e%2e/../../etc/passwd HTTP/1.1\r\nHost: [::1]\r\n\r\n"
    yield b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: [::1]\r\n\r\n"
    yield b"GET / HTTP/1.1\r\nHost: [::1]\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n"
    yield b"GET / HTTP/1.1\r\nHost: [::1]\r\n" + b"X: y\r\n" * 100_000 + b"\r\n"
    yield b"GET / HTTP/1.1\r\nHost: [::1]\r\nAuthorization: Bearer " + bytes(range(128, 256)) + b"\r\n\r\n"
    yield post + b"Content-Length: -1\r\n\r\n{}"
    yield post + b"Content-Length: 99999999999999999999\r\n\r\n{}"
    yield post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"
    yield post + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield post + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}"
    yield post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    yield post + JSON.encode() + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"
    yield (
        post
        + b"Content-Type: multipart/form-data; boundary="
        + b"b" * 5000
        + b"\r\nContent-Length: 2\r\n\r\n--"
    )
    yield post + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    yield get + b"Range: bytes=" + b"0-0," * 10_000 + b"-1\r\n\r\n"
    yield get + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n"
    for _ in range(30):
        yield get.replace(b" HTTP", b"?" + quote(rng.randbytes(50)).encode() + b" HTTP") + b"\r\n"
        yield rng.randbytes(rng.randrange(1, 3000))
        whole = bytearray(post + JSON.encode() + b'Content-Length: 20\r\n\r\n{"fen":"8/8","a":[]}')
        for _ in range(rng.randrange(1, 8)):
            whole[rng.randrange(len(whole))] = rng.randrange(256)
        yield bytes(whole[: rng.randrange(1, len(whole) + 1)])


def attack_http(url: str, paths: Sequence[str], *, access: Access = OPEN, seed: int = 0) -> Counter[int]:
    """Sends all of it to each path, while `CONNECTIONS` clients are slow or silent."""
    rng, seen = random.Random(seed), Counter[int]()
    place = urlsplit(url).hostname or "", urlsplit(url).port or 0
    with (
        contextlib.ExitStack() as exits,
        httpx.Client(base_url=url, headers=access.headers, timeout=60.0) as http,
    ):
        for number in range(CONNECTIONS):
            slow = exits.enter_context(socket.create_connection(place))
            slow.sendall(b"POST / HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 9999\r\n\r\n{"[: number // 2])
        for path in paths:
            for name, body in bodies():
                headers = {"Content-Type": "application/json"}
                try:
                    answer = http.post(path, content=body, headers=headers)
                    seen[answer.status_code] += 1
                    assert answer.status_code < 500, (path, name, answer.text[:300])
                    assert len(answer.content) < 100_000, (path, name, len(answer.content))
                except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
                    seen[0] += 1  # it has answered a body that it did not read to its end
            for raw in requests(path, access, rng):
                seen[_send(place, raw)] += 1
        assert http.get("/healthz").status_code == 200
    _reset(place)
    return seen


def healthz_cpu_s(url: str, pid: int) -> float:
    """The most CPU time that the process needs for an answer to `/healthz`.

    Meanwhile `CROWD` clients connect and are slow or silent, and others ask for long paths.
    """
    place = urlsplit(url).hostname or "", urlsplit(url).port or 0
    spent = []

    def measure() -> None:
        before = sum(psutil.Process(pid).cpu_times()[:2])
        assert httpx.get(f"{url}/healthz", timeout=60.0).status_code == 200
        spent.append(sum(psutil.Process(pid).cpu_times()[:2]) - before)

    with contextlib.ExitStack() as exits:
        for number in range(CROWD):
            slow = exits.enter_context(socket.create_connection(place))
            slow.sendall(b"POST / HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 9999\r\n\r\n{"[: number % 64])
            if number % 50 == 0:
                measure()
        for path in LONG_PATHS:
            caller = exits.enter_context(socket.create_connection(place))
            caller.sendall(f"GET {path}{'a' * 60_000} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            measure()
    return max(spent)


def _send(place: tuple[str, int], raw: bytes) -> int:
    """The status of the answer to raw bytes; 0 if there is none."""
    with socket.create_connection(place) as sock:
        sock.settimeout(0.1)
        said = b""
        with contextlib.suppress(OSError):
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            while len(said) < 12 and (more := sock.recv(4096)):
                said += more
    status = int(said[9:12]) if said.startswith(b"HTTP/1.1 ") else 0
    assert status < 500, (raw[:200], said)
    return status


def _reset(place: tuple[str, int]) -> None:
    """Connections that end in the middle of a body with a reset, not with a goodbye."""
    for _ in range(CONNECTIONS):
        with socket.create_connection(place) as sock:
            sock.sendall(
                b"POST /v1/score HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 9999\r\n\r\n" + b"x" * 5000
            )
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def attack_grpc(target: str, service: ServiceDescriptor, *, seed: int = 0) -> Counter[str]:
    """Sends garbage to the port, and to each method messages that are none, too large, or mean nothing."""
    rng, seen = random.Random(seed), Counter[str]()
    host, port = target.rsplit(":", 1)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with contextlib.ExitStack() as exits:
        for number in range(CROWD):
            sock = exits.enter_context(socket.create_connection((host, int(port))))
            garbage = rng.randbytes(number * 10 if number < CONNECTIONS else 0)
            with contextlib.suppress(OSError):
                sock.sendall(preface * (number % 2) + garbage)
        with grpc.insecure_channel(target, options=[("grpc.max_send_message_length", -1)]) as channel:
            for method in service.methods:
                send = channel.unary_stream(f"/{service.full_name}/{method.name}")
                for raw in payloads(method.input_type, rng):
                    try:
                        answers = send(raw, timeout=60.0, wait_for_ready=True)
                        next(answers, None)  # some streams have no end
                        answers.cancel()
                        seen["OK"] += 1
                    except grpc.RpcError as error:
                        assert isinstance(error, grpc.Call)
                        seen[error.code().name] += 1
    return seen


def send_zeros(target: str, service: ServiceDescriptor) -> str:
    """The code of the answer to a message of zeros that is compressed to a thousandth."""
    method = service.methods[0]
    with grpc.insecure_channel(target, options=[("grpc.max_send_message_length", -1)]) as channel:
        send = channel.unary_unary(f"/{service.full_name}/{method.name}")
        try:
            send(bytes(ZEROS), timeout=60.0, compression=grpc.Compression.Gzip)
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            return str(error.code().name)
    return "OK"


def payloads(kind: Descriptor, rng: random.Random) -> Iterator[bytes]:
    """The bytes of messages of a kind, and what is no message at all."""
    for size in (0, 1, 10, 100, 10_000, 17 << 20):
        for _ in range(10 if size < 1000 else 1):
            yield rng.randbytes(size)
    yield b"\x0b" * NESTED  # groups, which protobuf no longer has, in one another
    for _ in range(MESSAGES):
        whole = bytearray(message(kind, rng).SerializeToString())
        yield bytes(whole)
        if whole:
            whole[rng.randrange(len(whole))] = rng.randrange(256)
        yield bytes(whole)


def message(kind: Descriptor, rng: random.Random) -> Message:
    """A message that is well formed, with values at their limits."""
    made = GetMessageClass(kind)()
    for field in kind.fields:
        if rng.random() < 0.2:
            continue
        if not field.is_repeated:
            values = [_value(field, rng)]
            if field.message_type:
                getattr(made, field.name).CopyFrom(values[0])
            else:
                setattr(made, field.name, values[0])
        else:
            getattr(made, field.name).extend(_value(field, rng) for _ in range(rng.choice((0, 1, 3, 300))))
    return made


TEXTS = (
    *("", "\x00", "\u202e\U0001f600", "../../etc/passwd", "x" * 100_000, "%s%n{0}", "a1a1", "e2e4", "fen"),
    *("8/8/8/8/8/8/8/8 w - - 0 1", "k7/8/8/8/8/8/8/7K w - - 99999999999999999999 -1", "move", "delta"),
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
)


def _value(field: FieldDescriptor, rng: random.Random) -> object:
    if field.message_type:
        return message(field.message_type, rng)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return rng.choice(TEXTS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    bits = 64 if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else 31  # of enumerations too
    return rng.choice((0, 1, 2, rng.getrandbits(bits), (1 << bits) - 1))


def settled_memory(pid: int) -> int:
    """Resident bytes of a process and its children, once they no longer change much."""
    before = 0
    for _ in range(50):
        process = psutil.Process(pid)
        now = sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
        if abs(now - before) < 1 << 20:
            break
        before = now
        time.sleep(0.1)
    return now
