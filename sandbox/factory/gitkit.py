"""Git repositories as files, without git: the same bytes wherever they are made.

Objects are stored uncompressed (a zlib stream of stored blocks), since what a compressor gives depends on its
version. Formats: gitformat-pack(5), gitformat-index(5), and "Git Internals" of the Pro Git book.
"""

from __future__ import annotations

import hashlib
import zlib
from random import Random

from sandbox.factory.kit import PEOPLE, word

START = 1_735_725_600  # 2025-01-01 10:00 UTC


class Repository:
    """A repository in the making. `files` gives its .git folder and the work tree of the branch `main`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refs: dict[str, str] = {}

    def commit(
        self,
        tree: dict[str, str],
        message: str,
        parents: tuple[str, ...] = (),
        author: str = "Noor",
        time: int = START,
    ) -> str:
        """Adds a commit of the whole tree (path -> text) and returns its id."""
        who = f"{author.capitalize()} <{author.lower()}@example.org> {time} +0000"
        lines = [f"tree {self._tree(tree)}", *(f"parent {parent}" for parent in parents)]
        return self._object(
            "commit", "\n".join([*lines, f"author {who}", f"committer {who}", "", message, ""]).encode()
        )

    def files(self, tree: dict[str, str]) -> dict[str, str | bytes]:
        """Path -> content of .git and of `tree`, that of the commit at `main`."""
        found: dict[str, str | bytes] = {
            ".git/HEAD": "ref: refs/heads/main\n",
            ".git/config": "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
            "[user]\n\tname = Agent\n\temail = agent@example.org\n[gc]\n\tauto = 0\n",
            ".git/index": self._index(tree),
        }
        for name, target in self.refs.items():
            found[f".git/refs/{name}"] = target + "\n"
        for key, data in self.objects.items():
            found[f".git/objects/{key[:2]}/{key[2:]}"] = _stored(data)
        return found | tree

    def _object(self, kind: str, body: bytes) -> str:
        data = f"{kind} {len(body)}\0".encode() + body
        key = hashlib.sha1(data).hexdigest()
        self.objects[key] = data
        return key

    def _tree(self, tree: dict[str, str]) -> str:
        folders: dict[str, dict[str, str]] = {}
        entries: list[tuple[str, bytes]] = []
        for path, text in tree.items():
            top, slash, rest = path.partition("/")
            if slash:
                folders.setdefault(top, {})[rest] = text
            else:
                entries.append((path, _entry("100644", path, self._object("blob", text.encode()))))
        for name, inner in folders.items():
            entries.append((name + "/", _entry("40000", name, self._tree(inner))))
        return self._object("tree", b"".join(entry for _, entry in sorted(entries)))

    def _index(self, tree: dict[str, str]) -> bytes:
        data = b"DIRC" + (2).to_bytes(4, "big") + len(tree).to_bytes(4, "big")
        for path in sorted(tree):
            key = self._object("blob", tree[path].encode())
            # No time and no inode: git compares the content of such a file.
            entry = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(12)
            entry += bytes.fromhex(key) + len(path.encode()).to_bytes(2, "big") + path.encode()
            data += entry + bytes(8 - len(entry) % 8)
        return data + hashlib.sha1(data).digest()


def history(rng: Random, trees: list[dict[str, str]], messages: list[str]) -> tuple[Repository, list[str]]:
    """A line of commits on `main`, hours apart, by several authors; their ids, oldest first."""
    repository, made = Repository(), list[str]()
    authors = [word(rng, PEOPLE) for _ in range(3)]
    for number, (tree, message) in enumerate(zip(trees, messages, strict=True)):
        time = START + 7200 * number + rng.randrange(3600)
        made.append(repository.commit(tree, message, tuple(made[-1:]), rng.choice(authors), time))
    repository.refs["heads/main"] = made[-1]
    return repository, made


def _entry(mode: str, name: str, key: str) -> bytes:
    return f"{mode} {name}\0".encode() + bytes.fromhex(key)


def _stored(data: bytes) -> bytes:
    blocks = [data[start : start + 65535] for start in range(0, len(data), 65535)]
    body = b""
    for number, block in enumerate(blocks, 1):
        size = len(block).to_bytes(2, "little")
        body += bytes([number == len(blocks)]) + size + bytes(255 - byte for byte in size) + block
    return b"\x78\x01" + body + zlib.adler32(data).to_bytes(4, "big")
