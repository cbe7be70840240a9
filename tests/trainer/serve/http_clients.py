"""http_clients.py BUILD: spillway-serve over real sockets: answers, streams, refusals, clients that leave, draining.

The model is a small GPT-2 of bytes that spillway-train makes and saves, so that the way from a training to a server is
the one that a user goes.
"""
import http.client
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CONFIG = """
[model]
layers = 1
width = 16
heads = 2
context = 512
[data]
corpus = "{folder}/corpus.txt"
[train]
steps = 1
batch = 1
[evaluation]
windows = 1
[run]
out = "{folder}/run"
save = "{folder}/tiny"
device = "cpu"
"""


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not come")
        time.sleep(0.01)


class Server:
    def __init__(self, folder, *options):
        self.process = subprocess.Popen(
            [BUILD / "bin" / "spillway-serve", "--device", "cpu", "--threads", "1", "--model", folder, "--port", "0",
             *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if " serves tiny" not in line:
            raise AssertionError(line + self.process.communicate()[1])
        self.port = int(line.split()[0].rsplit(":", 1)[1])

    def open(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, method, path, body=None, connection=None):
        used = connection or self.open()
        used.request(method, path, json.dumps(body) if isinstance(body, dict) else body)
        answer = used.getresponse()
        told = answer.status, json.loads(answer.read())
        if not connection:
            used.close()
        return told

    def complete(self, **body):
        return self.ask("POST", "/v1/completions", body)

    def health(self):
        return self.ask("GET", "/health")[1]

    def idle(self):
        health = self.health()
        return health["running"] + health["waiting"] == 0 and health["free_blocks"] == health["blocks"]

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


class HttpClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        (folder / "corpus.txt").write_text("The page spills to host and back again.\n" * 400)
        (folder / "config.toml").write_text(CONFIG.format(folder=folder))
        subprocess.run([BUILD / "bin" / "spillway-train", "--quiet", "--config", folder / "config.toml"], check=True,
                       capture_output=True)
        cls.model = folder / "tiny"
        cls.server = Server(cls.model)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.end() == 0

    def test_an_address_that_it_cannot_have_is_named_before_the_model_is_opened(self):
        def said(*options):
            done = subprocess.run([BUILD / "bin" / "spillway-serve", "--device", "cpu", "--threads", "1", "--model",
                                   self.model / "absent", *options], capture_output=True, text=True, timeout=60)
            return done.returncode, done.stderr.strip()
        self.assertEqual(said("--host", "999.1.1.1"), (1, "spillway-serve: --host 999.1.1.1: is no address; give one "
                                                          "of this machine's, such as 127.0.0.1 or 0.0.0.0"))
        self.assertEqual(said("--port", str(self.server.port)),
                         (1, f"spillway-serve: cannot listen at --host 127.0.0.1 --port {self.server.port}: Address "
                             "already in use"))

    def test_a_window_beyond_the_context_is_named(self):
        done = subprocess.run([BUILD / "bin" / "spillway-serve", "--device", "cpu", "--model", self.model, "perplexity",
                               self.model / "config.json", "--window", "50000"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--window must be from 2 to ", done.stderr)

    def test_answers_have_the_form_that_clients_know(self):
        status, answer = self.server.complete(model="tiny", prompt="The page", max_tokens=6, temperature=0, n=2,
                                              logprobs=2)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["object"], "text_completion")
        self.assertTrue(answer["id"].startswith("cmpl-"))
        self.assertEqual(answer["usage"], {"prompt_tokens": 8, "completion_tokens": 12, "total_tokens": 20})
        first, second = answer["choices"]
        self.assertEqual((first["index"], second["index"]), (0, 1))
        self.assertEqual(first["token_ids"], second["token_ids"], "both are greedy")
        self.assertEqual(first["finish_reason"], "length")
        self.assertEqual(first["text"].encode().replace("\ufffd".encode(), b"?"),
                         bytes(t if t < 128 else ord("?") for t in first["token_ids"]))
        self.assertEqual(len(first["logprobs"]["token_logprobs"]), 6)
        self.assertEqual(answer["model"], "tiny")
        status, models = self.server.ask("GET", "/v1/models")
        self.assertEqual((status, models["object"], models["data"][0]["id"]), (200, "list", "tiny"))

    def test_seeds_repeat_and_prompts_may_be_many(self):
        ask = {"prompt": ["The page", [84, 104]], "max_tokens": 20, "seed": 7, "temperature": 1.5}
        answers = [[choice["token_ids"] for choice in self.server.complete(**ask)[1]["choices"]] for _ in range(2)]
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(len(answers[0]), 2)
        other = self.server.complete(**{**ask, "seed": 8})[1]["choices"]
        self.assertNotEqual([choice["token_ids"] for choice in other], answers[0])

    def test_streams_are_the_same_tokens_in_parts(self):
        body = {"prompt": "The page", "max_tokens": 500, "seed": 3, "stop": "zqx"}
        whole = self.server.complete(**body)[1]["choices"][0]
        connection = self.server.open()
        connection.request("POST", "/v1/completions",
                           json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}))
        answer = connection.getresponse()
        self.assertEqual(answer.getheader("Content-Type"), "text/event-stream")
        events = [line[6:].decode() for line in answer.read().split(b"\n") if line.startswith(b"data: ")]
        self.assertEqual(events[-1], "[DONE]")
        parts = [json.loads(event) for event in events[:-1]]
        self.assertEqual(parts[-1]["usage"]["completion_tokens"], len(whole["token_ids"]))
        choices = [part["choices"][0] for part in parts[:-1]]
        self.assertGreater(len(choices), 1)
        self.assertEqual("".join(choice["text"] for choice in choices), whole["text"])
        self.assertEqual([t for choice in choices for t in choice["token_ids"]], whole["token_ids"])
        self.assertEqual([choice["finish_reason"] for choice in choices][-1], whole["finish_reason"])
        self.assertEqual(self.server.ask("GET", "/health", connection=connection)[0], 200, "the connection stays")
        connection.close()

    def test_bad_requests_are_refused_in_words(self):
        for method, path, body, status, word in (
                ("POST", "/v1/completions", "{", 400, "JSON"),
                ("POST", "/v1/completions", {"prompt": "a", "model": "other"}, 404, "other"),
                ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 513}, 400, "max_tokens"),
                ("POST", "/v1/completions", {"prompt": "a" * 500, "max_tokens": 13}, 400, "512"),
                ("POST", "/v1/completions", {"prompt": "a", "echo": True}, 400, "echo"),
                ("POST", "/v1/completions", b"x" * (1 << 20) + b"x", 413, "1048576"),
                ("GET", "/v1/completions", None, 405, "POST"),
                ("GET", "/v1/chat/completions", None, 404, "/v1/chat/completions")):
            with self.subTest(path, word=word):
                got, answer = self.server.ask(method, path, body)
                self.assertEqual(got, status)
                self.assertIn(word, answer["error"]["message"])
                self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as raw:
            raw.sendall(b"no request\r\n\r\n")
            self.assertIn(b"400", raw.recv(100))

    def test_lists_in_lists_without_end_are_refused(self):
        deep = '{"prompt": "a", "max_tokens": 1, "stop": ' + "[" * 400000 + "]" * 400000 + "}"
        status, answer = self.server.ask("POST", "/v1/completions", deep)
        self.assertEqual(status, 400)
        self.assertIn("in more than", answer["error"]["message"])

    def test_a_head_has_no_body(self):
        connection = self.server.open()
        length = connection.request("GET", "/v1/models") or len(connection.getresponse().read())
        connection.request("HEAD", "/v1/models")
        head = connection.getresponse()
        self.assertEqual((head.status, head.getheader("Content-Length"), head.read()), (200, str(length), b""))
        self.assertEqual(self.server.ask("GET", "/health", connection=connection)[0], 200, "nothing was left over")
        connection.close()

    def test_a_client_of_http_1_0_has_its_stream_without_chunks(self):
        body = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True})
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as raw:
            raw.sendall(f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            with raw.makefile("rb") as answer:
                header, events = answer.read().split(b"\r\n\r\n", 1)  # to the end of the connection
        self.assertNotIn(b"chunked", header.lower())
        lines = [line for line in events.split(b"\n") if line]
        self.assertEqual([line for line in lines if not line.startswith(b"data: ")], [])
        self.assertEqual(lines[-1], b"data: [DONE]")

    def test_answers_that_cannot_be_written_are_an_error(self):
        requests = pathlib.Path(self.scratch.name) / "requests.jsonl"
        requests.write_text('{"prompt": "a", "max_tokens": 1}\n')
        with open("/dev/full", "w") as full:
            ended = subprocess.run([BUILD / "bin" / "spillway-serve", "--device", "cpu", "--threads", "1", "--model",
                                    self.model, "generate", requests], stdout=full, stderr=subprocess.PIPE, text=True,
                                   timeout=60)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("the output could not be written to its end", ended.stderr)

    def test_client_that_leaves_frees_its_sequence(self):
        for stream in (False, True):
            with self.subTest(stream=stream):
                before = self.server.health()["tokens"]
                connection = self.server.open()
                connection.request("POST", "/v1/completions", json.dumps(
                    {"prompt": "a", "max_tokens": 511, "n": 100, "stream": stream, "temperature": 0}))
                until(lambda: self.server.health()["running"] > 0)
                connection.sock.close()
                connection.close()
                until(self.server.idle)
                self.assertLess(self.server.health()["tokens"] - before, 511 * 100)

    def test_many_clients_at_once_have_what_each_had_alone(self):
        server = Server(self.model, "--blocks", "40")
        bodies = [{"prompt": "abcdefgh"[:1 + i % 8] * (1 + i % 3), "max_tokens": 100 + i, "seed": i} for i in range(12)]
        alone = [server.complete(**body)[1]["choices"][0]["token_ids"] for body in bodies]
        self.assertEqual(server.health()["preemptions"], 0)
        together = [None] * len(bodies)

        def client(i):
            together[i] = server.complete(**bodies[i])[1]["choices"][0]["token_ids"]

        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)
        until(server.idle)
        self.assertEqual(server.end(), 0)

    def test_term_drains(self):
        server = Server(self.model)
        idle, busy = server.open(), server.open()
        server.ask("GET", "/health", connection=idle)
        busy.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 400, "n": 8}))
        until(lambda: server.health()["running"] > 0)
        server.process.send_signal(signal.SIGTERM)
        answer = busy.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertEqual(len(json.loads(answer.read())["choices"]), 8)
        server.process.communicate(timeout=30)
        self.assertEqual(server.process.returncode, 0)
        idle.close()
        busy.close()

    def test_command_line_is_checked(self):
        for arguments, code, word in ((["--model", "/nowhere"], 2, "/nowhere/config.json"),
                                      ([], 2, "--model is required"),
                                      (["--modle", "x"], 2, "--modle"),
                                      (["--model", str(self.model), "--port", "99999"], 2, "99999 not in range"),
                                      (["generate", "/nowhere.jsonl", "--model", "/nowhere"], 2, "/nowhere.jsonl"),
                                      (["perplexity", "/nowhere.txt", "--model", "/nowhere"], 2, "/nowhere.txt"),
                                      (["--model", str(self.model), "--blocks", "0", "--dtype", "fp8"], 2, "fp8"),
                                      (["--model", str(self.model), "--cache", "1"], 17, "no room for a cache"),
                                      (["--model", str(self.model), "--devices", "2"], 2, "--device-map are of GPUs")):
            done = subprocess.run([BUILD / "bin" / "spillway-serve", "--device", "cpu", *arguments],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
