import net, { type AddressInfo, type Server, type Socket } from "node:net";

// Connections within this process. The kernel carries them in real time, and in an order of its own: here is what is
// still under way, and the order in which they were begun.

interface Connection {
  /** Among those to its server, in the order in which they were begun. */
  number: number;
  client: Socket;
  /** The end of the server; undefined: the kernel has not handed it over. */
  accepted: Socket | undefined;
}

class Connections {
  readonly #open = new Set<Connection>();
  /** Of each server by its port: connections so far. */
  readonly #counts = new Map<number, number>();
  /** By the port of the client, until both ends are known. */
  readonly #begun = new Map<number, Connection>();
  readonly #accepted = new Map<number, Socket>();
  readonly #waiting = new Map<Socket, (number: number) => void>();

  /** Whether each is made, and has carried what was written to those who read; what they leave unread is never carried. */
  isStill(): boolean {
    for (const { client, accepted } of this.#open) {
      if (accepted === undefined || !hasRead(accepted, client) || !hasRead(client, accepted)) {
        return false;
      }
    }
    return true;
  }

  /** Calls `work` with the number of a connection that a server has accepted, as soon as that is known. */
  whenNumbered(accepted: Socket, work: (number: number) => void): void {
    this.#waiting.set(accepted, work);
    this.#meet(accepted.remotePort ?? 0);
  }

  listen(server: Server): void {
    server.once("listening", () => {
      const { port } = server.address() as AddressInfo; // servers of this process listen on TCP
      this.#counts.set(port, 0);
      server.once("close", () => void this.#counts.delete(port));
    });
    server.prependListener("connection", (accepted: Socket) => {
      const { remotePort } = accepted;
      if (remotePort === undefined) return; // the client has gone
      this.#accepted.set(remotePort, accepted);
      accepted.once("close", () => {
        if (this.#accepted.get(remotePort) === accepted) this.#accepted.delete(remotePort);
        this.#waiting.delete(accepted);
      });
      this.#meet(remotePort);
    });
  }

  connect(client: Socket, port: number): void {
    const count = this.#counts.get(port);
    if (count === undefined) return;
    this.#counts.set(port, count + 1);
    const connection: Connection = { number: count + 1, client, accepted: undefined };
    this.#open.add(connection);
    client.once("connect", () => {
      const { localPort = 0 } = client;
      this.#begun.set(localPort, connection);
      this.#meet(localPort);
    });
    client.once("close", () => {
      this.#open.delete(connection);
      for (const [localPort, begun] of this.#begun) {
        if (begun === connection) this.#begun.delete(localPort);
      }
    });
  }

  #meet(port: number): void {
    const [connection, accepted] = [this.#begun.get(port), this.#accepted.get(port)];
    if (connection === undefined || accepted === undefined) return;
    if (connection.accepted === undefined) {
      connection.accepted = accepted;
      accepted.once("close", () => void this.#open.delete(connection));
    }
    const work = this.#waiting.get(accepted);
    this.#waiting.delete(accepted);
    work?.(connection.number);
  }
}

/** Node has no other word for it: one that was paused does not read. */
interface Reading {
  _handle?: { reading?: boolean } | null;
}

function hasRead(reader: Socket, writer: Socket): boolean {
  const { _handle: handle } = reader as Socket & Reading;
  return (
    handle?.reading !== true ||
    reader.readableEnded ||
    writer.destroyed ||
    reader.bytesRead >= writer.bytesWritten
  );
}

export const connections = new Connections();

/** From now on {@link connections} knows all servers of this process and all connections to them. */
export function followConnections(): void {
  const { connect } = net.Socket.prototype;
  net.Socket.prototype.connect = function (this: Socket, ...given: unknown[]) {
    const [target] = given.flat() as [{ port?: unknown } | undefined]; // as `net.connect` and agents call it
    connections.connect(this, Number(target?.port));
    return Reflect.apply(connect, this, given);
  } as typeof connect;
  const { listen } = net.Server.prototype;
  net.Server.prototype.listen = function (this: Server, ...given: unknown[]) {
    connections.listen(this);
    return Reflect.apply(listen, this, given);
  } as typeof listen;
}
