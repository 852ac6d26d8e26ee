"""Carries the data plane of one namespace and makes it late, narrow or deaf.

    proxy.py PORT MARK

Connections come by an iptables redirect, so UCX knows nothing of it, whatever ports it opens; packets of this program's own connections
carry MARK, which the redirect leaves alone. A line of standard input says how bytes pass from now on; it is answered by a line once it holds:

    delay SECONDS    every byte comes so much later
    rate BYTES       no more than so many bytes per second, each way of each connection
    half forward     what was sent by whoever connected arrives nowhere, the other way is as usual (half back: the reverse)
    pass             as usual; connections that lost something are reset

The end of a connection is passed on as what it was, a close or a reset."""
import collections
import queue
import socket
import struct
import sys
import threading
import time

ORIGINAL_DESTINATION = 80  # SO_ORIGINAL_DST of linux/netfilter_ipv4.h
PIECE = 64 << 10
Shape = collections.namedtuple("Shape", "delay rate lost")
PASS = Shape(0.0, None, None)


class Connection:
    """Two sockets and what is on the way between them: for each direction a thread that reads and one that writes."""

    def __init__(self, proxy, near):
        self.proxy, self.tainted, self.ended = proxy, False, 0
        host = struct.unpack("!2xH4s8x", near.getsockopt(socket.SOL_IP, ORIGINAL_DESTINATION, 16))
        far = socket.socket()
        self.ends = (near, far)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, proxy.mark)
        far.connect((socket.inet_ntoa(host[1]), host[0]))

    def begin(self):
        near, far = self.ends
        for end in self.ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for way, source, target in (("forward", near, far), ("back", far, near)):
            pieces = queue.Queue(64)  # what is on the way; more waits where it comes from
            for step in (lambda s=source, p=pieces: self._read(s, p), lambda t=target, p=pieces, w=way: self._write(t, p, w)):
                threading.Thread(target=step, daemon=True).start()

    def _read(self, source, pieces):
        data = b"?"
        while data:
            try:
                data = source.recv(PIECE)
            except OSError:
                data = None
            pieces.put((time.monotonic() + self.proxy.shape.delay, data))

    def _write(self, target, pieces, way):
        data = b"?"
        while data:
            due, data = pieces.get()
            shape = self.proxy.shape
            time.sleep(max(0.0, due - time.monotonic(), len(data or b"") / shape.rate if shape.rate else 0.0))
            try:
                if data is None:
                    self.reset()
                elif shape.lost == way:
                    self.tainted = True
                elif data:
                    target.sendall(data)
                else:
                    target.shutdown(socket.SHUT_WR)
            except OSError:
                self.reset()
        self.proxy.over(self)

    def reset(self):
        for end in self.ends:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for it
            except OSError:
                pass
            end.close()


class Proxy:
    def __init__(self, port, mark):
        self.mark, self.shape = mark, PASS
        self.connections, self.lock = set(), threading.Lock()
        self.listener = socket.create_server(("", port), backlog=128)

    def accept(self):
        while True:
            near = self.listener.accept()[0]
            threading.Thread(target=self._begin, args=(near,), daemon=True).start()

    def _begin(self, near):
        try:
            connection = Connection(self, near)
        except OSError:  # nobody listens where it wants to go
            near.close()
            return
        with self.lock:
            self.connections.add(connection)
        connection.begin()

    def over(self, connection):
        """One direction has ended; with the second the connection is closed."""
        with self.lock:
            connection.ended += 1
            last = connection.ended == 2
            if last:
                self.connections.discard(connection)
        for end in connection.ends if last else ():
            end.close()

    def obey(self, words):
        number = float(words[1]) if words[0] in ("delay", "rate") else None
        self.shape = {"delay": lambda: PASS._replace(delay=number), "rate": lambda: PASS._replace(rate=number),
                      "half": lambda: PASS._replace(lost=words[1]), "pass": lambda: PASS}[words[0]]()
        if words[0] == "pass":
            with self.lock:
                tainted = [c for c in self.connections if c.tainted]
            for connection in tainted:
                connection.reset()


def main():
    proxy = Proxy(int(sys.argv[1]), int(sys.argv[2]))
    threading.Thread(target=proxy.accept, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        proxy.obey(line.split())
        print("done", flush=True)


main()
