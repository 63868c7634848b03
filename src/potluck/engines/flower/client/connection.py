"""A client machine's connection to the SuperLink, and the loop that answers its messages.

The process stays up, so a short task does not pay for a start. It speaks Flower's fleet protocol itself (flwr 1.41.0,
internal API, pinned): activate, heartbeat, pull, push. Each client does its tasks one after another in its own thread.
Other messages are answered at once, also while a task runs.
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

from potluck.engines.flower.protocol import Envelope
from potluck.engines.flower.transport import from_records, to_records
from potluck.errors import BadInput

HEARTBEAT = 10.0  # seconds; Flower marks a node that misses two as offline
FAST, SLOW = 0.25, 2.0  # seconds between two polls: just after a message, and after a while; each poll costs the server


@dataclass(frozen=True)
class ServerAddress:
    """How to reach the server."""

    address: str  # host:port
    root: Path | None  # the certificate authority; None for an insecure connection
    key: Path | None  # this node's private key


class NotLetIn(Exception):
    """The server refused this node. Holds the status, Flower's error code and text, and the server's clock."""

    def __init__(self, status: int, code: int | None, text: str, server_time: str) -> None:
        super().__init__(text)
        self.status, self.code, self.server_time = status, code, server_time


class _Version:
    """Sends this machine's Flower version. Flower's own interceptor would end the process on a mismatch."""

    def __init__(self) -> None:
        self._headers = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        add_headers(context.request, self._headers)
        return call_next(context)


class Connection:
    """This node, activated at the SuperLink."""

    def __init__(self, server: ServerAddress, stop: threading.Event) -> None:
        self._stop = stop
        self._closed = threading.Event()
        if server.key is None:
            keys = generate_key_pairs()
        else:
            private: Any = load_ssh_private_key(server.key.read_bytes(), None)
            keys = (private, private.public_key())
        self._public = public_key_to_bytes(keys[1])
        self._unkeyed = server.key is None  # a server without keys lets each node register itself
        self._client = FleetHttpClient.from_server_address(
            server.address,
            server.root is None,
            None if server.root is None else server.root.read_bytes(),
            [_Version(), NodeAuthHttpInterceptor(*keys)],
        )
        self.node = Node()  # has its id once it is activated

    def activate(self, before: int | None = None) -> int:
        """Come online; `before` is the id under which a killed process of this machine may still be listed."""
        if before is not None:
            self._quietly(self._client.DeactivateNode, DeactivateNodeRequest(node_id=before))
        if self._unkeyed:
            self._once(self._client.RegisterNode, RegisterNodeFleetRequest(public_key=self._public))
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        self.node = Node(node_id=self._once(self._client.ActivateNode, request).node_id)
        threading.Thread(target=self._beat, daemon=True).start()
        return self.node.node_id

    def close(self) -> None:
        self._closed.set()
        if self.node.node_id:
            self._quietly(self._client.DeactivateNode, DeactivateNodeRequest(node_id=self.node.node_id))
            if self._unkeyed:
                self._quietly(self._client.UnregisterNode, UnregisterNodeFleetRequest(node_id=self.node.node_id))
        self._client.close()

    def receive(self) -> tuple[Message, Envelope] | None:
        """The next message and its envelope, or None if there is none."""
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
            return message, from_records(message.content)
        except BadInput as error:
            return message, Envelope({"kind": "unreadable", "why": str(error)})

    def reply(self, message: Message, envelope: Envelope, seconds: float) -> None:
        answer = Message(to_records(envelope), reply_to=message)
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
            detail = FlowerError.from_json(response.text)
            text = response.text[:300] if detail is None else f"{detail.message} {detail.public_details or ''}".strip()
            code = None if detail is None else detail.code
            raise NotLetIn(response.status_code, code, text, response.headers.get("date", "")) from None

    def _call(self, call: Callable[[Any], Any], request: Any) -> Any:
        """Repeat a call until it works: the server may be restarting."""
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
                raise ConnectionError(f"stopped while the server did not answer ({problem})")
            pause = min(5.0, 1.5 * pause)

    def _quietly(self, call: Callable[[Any], Any], request: Any) -> None:
        try:
            self._once(call, request)
        except (httpx.TransportError, NotLetIn, RuntimeError):
            return  # the next call reports it, if there is one


class MessageLoop:
    """Answers messages; each client's tasks run in its own thread."""

    def __init__(
        self, connection: Connection, handle: Callable[[Envelope], Envelope], say: Callable[[str], None]
    ) -> None:
        self._connection = connection
        self._handle = handle
        self._say = say
        self._answers: queue.Queue[tuple[Message, Envelope, float]] = queue.Queue()
        self._threads: dict[str, ThreadPoolExecutor] = {}

    def run(self, stop: threading.Event) -> None:
        """Answer messages until `stop` is set, or until the server refuses this node."""
        pause = FAST
        while not stop.is_set():
            came = self._connection.receive()
            if came is None:
                pause = FAST if self._push(pause) else min(SLOW, pause * 1.4)
                continue
            pause = FAST
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
        refused, what = answer.head.get("refused"), _summary(ask.head)
        self._say(f"{what}: refused, {refused}" if refused else f"{what}: done in {seconds:.2f} s")
        self._answers.put((message, answer, seconds))

    def _push(self, wait: float) -> bool:
        """Send the answers that are ready, after waiting `wait` seconds for the first. Return whether any was sent."""
        sent = False
        while True:
            try:
                message, answer, seconds = self._answers.get(timeout=wait) if wait else self._answers.get_nowait()
            except queue.Empty:
                return sent
            sent, wait = True, 0.0
            try:
                self._connection.reply(message, answer, seconds)
            except NotLetIn as error:
                self._say(f"the server did not accept an answer: {error}")


def _summary(head: Mapping[str, Any]) -> str:
    parts = [str(head.get("kind"))]
    parts += [str(head[name]) for name in ("client", "ticket") if name in head]
    if head.get("legs", 1) != 1:
        parts.append(f"leg {int(head.get('leg', 0)) + 1} of {head['legs']}")
    return " ".join(parts)
