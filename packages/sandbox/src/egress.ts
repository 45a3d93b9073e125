import { chmod, rm } from "node:fs/promises";
import {
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  request,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from "node:http";
import { type Duplex, pipeline, Transform } from "node:stream";
import {
  EgressGate,
  type EgressGateOptions,
  targetOfAuthority,
  targetOfUrl,
} from "./egress-policy.ts";

export interface EgressProxyOptions extends EgressGateOptions {
  /** Where to listen. Every user who may enter its directory may use the proxy. */
  socketPath: string;
}

export interface EgressProxy {
  /** What was refused so far, each once, such as `denied: evil.test:80 (not on the allow-list)`. */
  denied(): string[];
  /** Cuts every connection and removes the socket. Idempotent. */
  close(): Promise<void>;
}

/** Headers that belong to one hop; the framing of a body is set anew from what remains. */
const hopHeaders = [
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "upgrade",
];

function endToEnd(headers: IncomingMessage["headers"]): OutgoingHttpHeaders {
  const named = (headers.connection ?? "").split(",").map((name) => name.trim().toLowerCase());
  const dropped = new Set([
    ...hopHeaders,
    ...named.filter(
      (name) => name !== "host" && name !== "content-length" && name !== "transfer-encoding",
    ),
  ]);
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !dropped.has(name)));
}

/** Passes bytes on as long as the gate lets them be paid for. */
function meter(gate: EgressGate): Transform {
  return new Transform({
    transform: (chunk: Buffer, _encoding, done) =>
      gate.pays(chunk.length)
        ? done(null, chunk)
        : done(new Error("too many bytes over the network")),
  });
}

/** The whole answer of a tunnel that is not opened. */
function tunnelRefusal(status: number, reason: string): string {
  const body = `egress: ${reason}\n`;
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nx-egress: denied\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`;
}

async function openTunnel(
  gate: EgressGate,
  authority: string,
  tunnel: { client: Duplex; head: Buffer },
): Promise<void> {
  const { client, head } = tunnel;
  const target = targetOfAuthority(authority);
  if (target === undefined) return void client.end(tunnelRefusal(400, "CONNECT wants host:port"));
  const passage = await gate.ask(target);
  if (!passage.ok) return void client.end(tunnelRefusal(403, passage.reason));
  // Were it closed as soon as it has said everything, that would break the other direction off, and the
  // client with it, before the client has read all.
  const upstream = await gate.dial(passage, { halfOpen: true }).catch(() => undefined);
  if (upstream === undefined) {
    return void client.end(tunnelRefusal(502, "the host cannot be reached"));
  }
  // One side that breaks takes the other along; a side that ends is only passed on.
  const broken = (error: unknown): void => {
    if (error === undefined || error === null) return;
    client.destroy();
    upstream.destroy();
  };
  if (client.destroyed) return void upstream.destroy();
  client.write("HTTP/1.1 200 Connection established\r\n\r\n");
  if (head.length > 0) client.unshift(head);
  pipeline(client, meter(gate), upstream, broken);
  pipeline(upstream, meter(gate), client, broken);
}

function refuse(response: ServerResponse, status: number, reason: string): void {
  if (response.headersSent) return void response.destroy();
  response.writeHead(status, {
    "x-egress": "denied",
    "content-type": "text/plain",
    connection: "close",
  });
  response.end(`egress: ${reason}\n`);
}

async function forward(
  gate: EgressGate,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const url = URL.parse(incoming.url ?? "");
  if (url?.protocol !== "http:") {
    return refuse(response, 400, "this is a proxy: absolute http URLs and CONNECT only");
  }
  const passage = await gate.ask(targetOfUrl(url));
  if (!passage.ok) return refuse(response, 403, passage.reason);
  const socket = await gate.dial(passage).catch(() => undefined);
  if (socket === undefined) return refuse(response, 502, "the host cannot be reached");
  if (response.destroyed) return void socket.destroy();
  const outgoing = request({
    createConnection: () => socket,
    method: incoming.method,
    path: `${url.pathname}${url.search}`,
    // The name that was checked, whatever the program wrote there.
    headers: { ...endToEnd(incoming.headers), host: url.host, connection: "close" },
  });
  const failed = (): void => {
    refuse(response, 502, "the host broke the connection off");
    socket.destroy();
  };
  outgoing.on("response", (answer) => {
    try {
      response.writeHead(answer.statusCode ?? 502, endToEnd(answer.headers));
    } catch {
      return failed(); // a status or header that Node reads but does not write
    }
    pipeline(answer, meter(gate), response, (error) => (error ? failed() : undefined));
  });
  outgoing.on("error", failed);
  response.on("close", () => socket.destroy());
  pipeline(incoming, meter(gate), outgoing, (error) => (error ? failed() : undefined));
}

function listen(server: Server, socketPath: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(socketPath, () => {
      server.off("error", reject).on("error", () => {});
      resolve();
    });
  });
}

/**
 * The only way out of a sandbox with a network: an HTTP proxy on a unix socket (CONNECT and absolute
 * URLs), for one program. Names that are not on the allow-list, addresses in any spelling, and names
 * that lead to addresses which are not public are refused with 403; each name is resolved here, once
 * per attempt, and the address that was checked is the one that is dialled. Rejects when the
 * allow-list names no hosts, or the socket cannot be made.
 */
export async function createEgressProxy(options: EgressProxyOptions): Promise<EgressProxy> {
  const gate = new EgressGate(options);
  const sockets = new Set<Duplex>();
  const server = createServer({ maxHeaderSize: 16_384, headersTimeout: 10_000, requestTimeout: 0 });
  server.maxConnections = gate.limits.connections;
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    socket.setTimeout(gate.limits.idleMs, () => socket.destroy());
  });
  server.on("drop", () => gate.crowded());
  server.on("request", (incoming, response) => {
    incoming.on("error", () => {});
    void forward(gate, incoming, response).catch(() => response.destroy());
  });
  server.on("connect", (incoming, client, head) => {
    void openTunnel(gate, incoming.url ?? "", { client, head }).catch(() => client.destroy());
  });
  await rm(options.socketPath, { force: true });
  await listen(server, options.socketPath);
  await chmod(options.socketPath, 0o666);
  let closed: Promise<void> | undefined;
  return {
    denied: () => gate.denied(),
    close: () =>
      (closed ??= new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      })),
  };
}
