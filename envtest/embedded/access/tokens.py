"""Tokens of service accounts: issued by TokenRequest, and read again when a client shows one.

They are JSON Web Tokens as kube-apiserver makes them, signed with a key of this server (HS256, where
kube-apiserver has RS256 or ES256): nobody else can check them. Go: kubernetes/pkg/serviceaccount.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
import uuid
from collections.abc import Sequence
from typing import Any

from envtest.embedded.api.requests import User
from envtest.embedded.api.store import Collection, Store
from kubernetes_rules.rbac import SERVICE_ACCOUNTS

Object = dict[str, Any]

AUDIENCE = "https://kubernetes.default.svc"
"""The audience of a token that is for the API server itself."""

_SERVICE_ACCOUNTS = ("", "serviceaccounts")
_BOUND: dict[str, Collection] = {"pod": ("", "pods"), "secret": ("", "secrets"), "node": ("", "nodes")}
_EXTRA = "authentication.kubernetes.io/"


class ServiceAccountTokens:
    """Issues tokens, and finds the users of those that it issued. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = secrets.token_bytes(32)

    def issue(
        self, account: Object, seconds: int, audiences: Sequence[str] = (AUDIENCE,), **bound: Object
    ) -> str:
        """A token of the service account that is good for so many seconds.

        ``bound`` are the objects that it is bound to (pod, secret, node): it ends with the pod or secret.
        """
        metadata, now = account["metadata"], int(time.time())
        references = {
            kind: {key: one["metadata"][key] for key in ("name", "uid") if key in one["metadata"]}
            for kind, one in bound.items()
        }
        claims = {
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": AUDIENCE,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": metadata["namespace"],
                "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
                **references,
            },
            "nbf": now,
            "sub": f"{SERVICE_ACCOUNTS}{metadata['namespace']}:{metadata['name']}",
        }
        head = {"alg": "HS256", "typ": "JWT"}
        signed = b".".join(
            _encoded(json.dumps(part, separators=(",", ":")).encode()) for part in (head, claims)
        )
        return b".".join((signed, _encoded(self._signature(signed)))).decode()

    def user_of(self, token: str, audiences: Sequence[str] = (AUDIENCE,)) -> tuple[User, list[str]] | None:
        """The user of a token, and its audiences among those wanted; None if it is not good (any more)."""
        claims = self._claims(token)
        if claims is None or not claims["nbf"] <= time.time() < claims["exp"]:
            return None
        shared = [one for one in audiences if one in claims["aud"]]
        private = claims["kubernetes.io"]
        account = private["serviceaccount"]
        namespace = private["namespace"]
        if not shared or not self._is_there(_SERVICE_ACCOUNTS, namespace, account):
            return None
        extra = [("credential-id", f"JTI={claims['jti']}")]
        for kind in ("pod", "node", "secret"):
            if kind not in private:
                continue
            # The node of a pod is only named: the token does not end with it.
            if (kind != "node" or "pod" not in private) and not self._is_there(
                _BOUND[kind], "" if kind == "node" else namespace, private[kind]
            ):
                return None
            if kind != "secret":
                extra += [(f"{kind}-{key}", value) for key, value in private[kind].items()]
        user = User(
            claims["sub"],
            service_account_groups(namespace),
            account["uid"],
            tuple(sorted((f"{_EXTRA}{key}", (value,)) for key, value in extra)),
        )
        return user, shared

    def _is_there(self, collection: Collection, namespace: str, reference: Object) -> bool:
        found = self._store.get(collection, (namespace, reference["name"]))
        return found is not None and found["metadata"]["uid"] == reference.get("uid")

    def _claims(self, token: str) -> Object | None:
        """What a token says, if this server signed it."""
        signed, _, signature = token.rpartition(".")
        try:
            if not hmac.compare_digest(_decoded(signature), self._signature(signed.encode())):
                return None
            claims: Object = json.loads(_decoded(signed.partition(".")[2]))
        except (binascii.Error, ValueError):
            return None
        return claims

    def _signature(self, signed: bytes) -> bytes:
        return hmac.new(self._key, signed, hashlib.sha256).digest()


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of all service accounts of a namespace."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
