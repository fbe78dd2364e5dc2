import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from corpora import wnut17
from smoothsp.data import read_splits

FILES = {
    "wnut17train.conll": b"Tarnholm\tB-location\nsleeps\tO\n\n" * 4000,
    "emerging.dev.conll": b"Quorvex\tB-corporation\nrose\tO\n\n",
    "emerging.test.annotated": b"ask\tO\nMirelle\tB-person\n\n",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        name = self.path.rsplit("/", 1)[-1]
        body = self.server.bodies.get(name)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        if self.server.announces_size:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.stops_after])
        self.server.may_end.wait(5)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    hashes = {name: hashlib.sha256(body).hexdigest() for name, body in FILES.items()}
    monkeypatch.setattr(wnut17, "SHA256", hashes)
    # A proxy of the environment would take the requests elsewhere.
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.bodies = dict(FILES)
        server.asked = []
        server.announces_size = True
        server.stops_after = None
        server.may_end = threading.Event()
        server.may_end.set()
        server.url = f"http://127.0.0.1:{server.server_port}/pinned"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.may_end.set()
        server.shutdown()
        thread.join()


def held(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_three_files_arrive_whole_and_can_be_loaded(server, tmp_path):
    folder = wnut17.fetch(tmp_path / "new" / "folder", server.url)
    assert folder == tmp_path / "new" / "folder"
    assert held(folder) == FILES
    splits = read_splits(folder)
    assert len(splits.train) == 4000
    assert splits.dev[0].tags == ["B-corporation", "O"]
    assert splits.test[0].words == ["ask", "Mirelle"]


def test_files_that_are_there_are_not_asked_for(server, tmp_path):
    (tmp_path / "emerging.dev.conll").write_bytes(FILES["emerging.dev.conll"])
    wnut17.fetch(tmp_path, server.url)
    assert server.asked == [
        "/pinned/wnut17train.conll",
        "/pinned/emerging.test.annotated",
    ]
    wnut17.fetch(tmp_path, server.url)
    assert len(server.asked) == 2


def test_a_wrong_hash_is_refused_and_nothing_is_kept(server, tmp_path):
    server.bodies["wnut17train.conll"] = b"<html>log in to this network</html>"
    found = hashlib.sha256(server.bodies["wnut17train.conll"]).hexdigest()
    expected = wnut17.SHA256["wnut17train.conll"]
    message = f"wnut17train.conll: expected SHA-256 {expected}, got {found}; .* again"
    with pytest.raises(ValueError, match=message):
        wnut17.fetch(tmp_path, server.url)
    assert held(tmp_path) == {}


def test_a_wrong_file_that_is_there_is_reported_and_left_alone(server, tmp_path):
    mine = {"wnut17train.conll": b"my own copy\tO\n"}
    (tmp_path / "wnut17train.conll").write_bytes(mine["wnut17train.conll"])
    with pytest.raises(ValueError, match=r"wnut17train.conll: expected .* Move the"):
        wnut17.fetch(tmp_path, server.url)
    assert held(tmp_path) == mine
    assert server.asked == []


def test_an_interrupted_body_leaves_nothing_behind(server, tmp_path):
    server.stops_after = 100_000
    with pytest.raises(ConnectionError, match=r"got 100000 of \d+ bytes"):
        wnut17.fetch(tmp_path, server.url)
    assert held(tmp_path) == {}
    server.stops_after = None
    assert held(wnut17.fetch(tmp_path, server.url)) == FILES


def test_a_silent_server_is_not_waited_for(server, tmp_path):
    server.stops_after = 1000
    server.may_end.clear()
    with pytest.raises(ConnectionError, match="timed out"):
        wnut17.fetch(tmp_path, server.url, timeout=0.1)
    assert held(tmp_path) == {}


def test_no_server_is_a_connection_error_with_the_way_by_hand(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(ConnectionError, match=r"put them into .*"):
        wnut17.fetch(tmp_path, server.url)
    assert held(tmp_path) == {}


def test_a_keyboard_interrupt_leaves_nothing_behind(server, tmp_path, monkeypatch):
    def interrupted(url, path, timeout):
        yield b"half"
        raise KeyboardInterrupt

    monkeypatch.setattr(wnut17, "_download_blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wnut17.fetch(tmp_path, server.url)
    assert held(tmp_path) == {}
