"""A client's machine on the line with the SuperLink: one process that stays, so that a short task costs no start.

It speaks Flower's fleet protocol itself (flwr 1.41.0, internal API, pinned): activate, heartbeat, pull, push. Tasks are
done one after another by a thread per client; greetings and looks are answered at once, also while a task is running.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supercore.interceptors.http.utils import add_headers
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from potluck.engines.flower.grid import packed, unpacked
from potluck.engines.flower.words import Envelope
from potluck.errors import BadInput

HEARTBEAT = 10.0  # seconds; a node that misses two is taken for gone
FAST, SLOW = 0.25, 2.0  # seconds between looks for work: just after some, and after a while; each costs the server


@dataclass(frozen=True)
class Line:
    """How to reach the server."""

    address: str  # host:port
    root: Path | None  # the certificate authority; None: an insecure line
    key: Path | None  # this node's private key


class NotLetIn(Exception):
    """The server did not take this node: why, and what Flower said."""

    def __init__(self, status: int, code: int | None, text: str, server_time: str) -> None:
        super().__init__(text)
        self.status, self.code, self.server_time = status, code, server_time


class _Version:
    """Says which Flower this is; whether the server minds is for us to tell, not a reason to end the process."""

    def __init__(self) -> None:
        self._headers = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        add_headers(context.request, self._headers)
        return call_next(context)


class Connection:
    """This node, activated at the SuperLink."""

    def __init__(self, line: Line, stop: threading.Event) -> None:
        self._stop = stop
        self._closed = threading.Event()
        if line.key is None:
            keys = generate_key_pairs()
        else:
            private: Any = load_ssh_private_key(line.key.read_bytes(), None)
            keys = (private, private.public_key())
        self._public = public_key_to_bytes(keys[1])
        self._stranger = line.key is None  # on a server without keys everybody registers himself
        self._client = FleetHttpClient.from_server_address(
            line.address,
            line.root is None,
            None if line.root is None else line.root.read_bytes(),
            [_Version(), NodeAuthHttpInterceptor(*keys)],
        )
        self.node = Node()  # once activated, with its id

    def activate(self, before: int | None = None) -> int:
        """Come online; `before` is the id under which a killed process of this machine may still be listed."""
        if before is not None:
            self._quietly(self._client.DeactivateNode, DeactivateNodeRequest(node_id=before))
        if self._stranger:
            self._once(self._client.RegisterNode, RegisterNodeFleetRequest(public_key=self._public))
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        self.node = Node(node_id=self._once(self._client.ActivateNode, request).node_id)
        threading.Thread(target=self._beat, daemon=True).start()
        return self.node.node_id

    def close(self) -> None:
        self._closed.set()
        if self.node.node_id:
            self._quietly(self._client.DeactivateNode, DeactivateNodeRequest(node_id=self.node.node_id))
            if self._stranger:
                self._quietly(self._client.UnregisterNode, UnregisterNodeFleetRequest(node_id=self.node.node_id))
        self._client.close()

    def receive(self) -> tuple[Message, Envelope] | None:
        """The next message, if there is one, and what is in it."""
        response = self._call(self._client.PullMessages, PullMessagesRequest(node=self.node))
        if not response.messages_list:
            return None
        bare = message_from_proto(response.messages_list[0])
        run, number = bare.metadata.run_id, bare.metadata.message_id
        pull = make_pull_object_fn_protobuf(partial(self._call, self._client.PullObject), self.node, run)
        parts = [tree.object_id for tree in iterate_object_tree(response.message_object_trees[0])]
        try:
            message: Any = inflate_object_from_contents(number, pull_objects(parts, pull))
        except (ObjectPullError, NotLetIn):
            return None  # the run it belongs to has ended meanwhile
        message.metadata.__dict__["_message_id"] = number
        confirmed = partial(self._call, self._client.ConfirmMessageReceived)
        make_confirm_message_received_fn_protobuf(confirmed, self.node, run)(number)
        try:
            return message, unpacked(message.content)
        except BadInput as error:
            return message, Envelope({"kind": "rubbish", "why": str(error)})

    def reply(self, message: Message, envelope: Envelope, seconds: float) -> None:
        answer = Message(packed(envelope), reply_to=message)
        with no_object_id_recompute():
            answer.metadata.__dict__["_message_id"] = answer.object_id
            tree: ObjectTree = get_object_tree(answer)
            parts = get_all_nested_objects(answer)
            request = PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(answer))],
                message_object_trees=[tree],
                clientapp_runtime_list=[seconds],
            )
            response = self._call(self._client.PushMessages, request)
            push = make_push_object_fn_protobuf(
                partial(self._call, self._client.PushObject), self.node, answer.metadata.run_id, response.session_id
            )
            push_objects(parts, push, object_ids_to_push=set(response.objects_to_push))

    def _beat(self) -> None:
        request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT)
        while not self._closed.wait(HEARTBEAT * 0.4):
            self._quietly(self._client.SendNodeHeartbeat, request)

    def _once(self, call: Callable[[Any], Any], request: Any) -> Any:
        try:
            return call(request)
        except httpx.HTTPStatusError as error:
            response = error.response
            told = FlowerError.from_json(response.text)
            text = response.text[:300] if told is None else f"{told.message} {told.public_details or ''}".strip()
            code = None if told is None else told.code
            raise NotLetIn(response.status_code, code, text, response.headers.get("date", "")) from None

    def _call(self, call: Callable[[Any], Any], request: Any) -> Any:
        """Until it works: a server that is started anew is waited for."""
        pause = 0.2
        while True:
            try:
                return self._once(call, request)
            except httpx.TransportError:
                problem: Exception | None = None
            except NotLetIn as error:
                if error.status not in (502, 503, 504):
                    raise
                problem = error
            if self._stop.wait(pause):
                raise ConnectionError(f"stopped while the server was away ({problem})")
            pause = min(5.0, 1.5 * pause)

    def _quietly(self, call: Callable[[Any], Any], request: Any) -> None:
        try:
            self._once(call, request)
        except (httpx.TransportError, NotLetIn, RuntimeError):
            return  # the next call will tell; closed meanwhile, there is none


class Worker:
    """Answers what comes in, tasks in a thread of their own."""

    def __init__(
        self, connection: Connection, handle: Callable[[Envelope], Envelope], say: Callable[[str], None]
    ) -> None:
        self._connection = connection
        self._handle = handle
        self._say = say
        self._answers: queue.Queue[tuple[Message, Envelope, float]] = queue.Queue()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._open = 0

    def serve(self, stop: threading.Event) -> None:
        """Until told to stop, or until the server does not take this node any more."""
        pause = FAST
        while not stop.is_set():
            came = self._connection.receive()
            if came is None:
                pause = FAST if self._push(pause) else min(SLOW, pause * 1.4)
                continue
            pause = FAST
            self._open += 1
            message, ask = came
            if ask.kind != "task":
                self._work(message, ask)
                self._push(0.0)
                continue
            client = str(ask.head.get("client"))
            if client not in self._threads:
                self._threads[client] = ThreadPoolExecutor(1, thread_name_prefix=f"client-{client}")
            self._threads[client].submit(self._work, message, ask)

    def _work(self, message: Message, ask: Envelope) -> None:
        began = time.monotonic()
        answer = self._handle(ask)
        seconds = time.monotonic() - began
        told = answer.head.get("refused")
        what = _said(ask.head)
        self._say(f"{what}: refused, {told}" if told else f"{what}: done in {seconds:.2f} s")
        self._answers.put((message, answer, seconds))

    def _push(self, wait: float) -> bool:
        """Send the answers that are there; wait so long for one."""
        sent = False
        while True:
            try:
                message, answer, seconds = self._answers.get(timeout=wait) if wait else self._answers.get_nowait()
            except queue.Empty:
                return sent
            self._open -= 1
            sent, wait = True, 0.0
            try:
                self._connection.reply(message, answer, seconds)
            except NotLetIn as error:
                self._say(f"an answer was not taken: {error}")


def _said(head: Mapping[str, Any]) -> str:
    parts = [str(head.get("kind"))]
    parts += [str(head[name]) for name in ("client", "ticket") if name in head]
    if head.get("legs", 1) != 1:
        parts.append(f"leg {int(head.get('leg', 0)) + 1} of {head['legs']}")
    return " ".join(parts)
