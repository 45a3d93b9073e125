import { createConnection, createServer, type AddressInfo, type Socket } from "node:net";

/** Which bytes get lost: those to the server, those to the client, or both. */
export type Swallowed = "toServer" | "toClient" | "both";

export interface TcpLine {
  readonly port: number;
  /**
   * As when a machine loses its power or a firewall forgets: what the open connections send goes nowhere, without an
   * error or an end. `which` chooses connections by what their clients sent last; with `andNew` those that are opened
   * later are lost as well, until {@link restore}.
   */
  swallow(
    what?: Swallowed,
    options?: { which?: (lastSent: string) => boolean; andNew?: boolean },
  ): void;
  /** New connections work again; those that were swallowed stay lost. */
  restore(): void;
  /** Cuts all connections. */
  cut(): void;
  close(): void;
}

interface Connection {
  lost: Swallowed | undefined;
  lastSent: string;
  sockets: readonly Socket[];
}

interface Rule {
  what: Swallowed;
  which: (lastSent: string) => boolean;
}

/** A line between a server on this machine and its clients. */
export async function startTcpLine(targetPort: number): Promise<TcpLine> {
  const connections = new Set<Connection>();
  let rule: Rule | undefined;
  const server = createServer((client) => {
    const target = createConnection(targetPort, "127.0.0.1");
    const connection: Connection = { lost: undefined, lastSent: "", sockets: [client, target] };
    connections.add(connection);
    client.on("data", (bytes: Buffer) => {
      connection.lastSent = bytes.toString("latin1");
      if (rule?.which(connection.lastSent) === true) connection.lost = rule.what;
      if (connection.lost !== "toServer" && connection.lost !== "both") target.write(bytes);
    });
    target.on("data", (bytes: Buffer) => {
      if (connection.lost !== "toClient" && connection.lost !== "both") client.write(bytes);
    });
    for (const socket of connection.sockets) socket.on("error", () => undefined);
    client.on("close", () => {
      target.destroy();
      connections.delete(connection);
    });
    target.on("close", () => {
      // The end of a connection whose answers are lost does not reach the client.
      if (connection.lost === undefined || connection.lost === "toServer") client.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // it listens on TCP
  const cut = (): void => {
    for (const { sockets } of connections) for (const socket of sockets) socket.destroy();
  };
  return {
    port,
    swallow: (what = "both", { which = () => true, andNew = false } = {}) => {
      for (const connection of connections) if (which(connection.lastSent)) connection.lost = what;
      rule = andNew ? { what, which } : undefined;
    },
    restore: () => (rule = undefined),
    cut,
    close: () => {
      cut();
      server.close();
    },
  };
}
