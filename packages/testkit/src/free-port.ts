import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";

const lowestPort = 10_000;
const highestPort = 65_535;
/** Ports of one block. A process listens on the first one for as long as it lives: so the others are its own. */
const blockSize = 64;
/** Blocks that one process may own. */
const mostBlocks = 8;

const locks: Server[] = [];
/** Ports of the own blocks: those that were never given out, then the others, the longest ago first. */
const ports: number[] = [];
let neverGiven = 0;
let choosing: Promise<unknown> = Promise.resolve();

/**
 * A TCP port of loopback on which nothing listens at this moment. A server that is killed can start again on it: it
 * lies outside the ephemeral range, so the kernel gives it to no outgoing connection, and no other process gets it
 * from here while this one lives.
 */
export async function freePort(): Promise<number> {
  const port = choosing.then(choosePort);
  choosing = port.catch(() => undefined);
  return await port;
}

async function choosePort(): Promise<number> {
  for (let tried = 0; tried < 2 * mostBlocks * blockSize; tried += 1) {
    if (neverGiven === 0 && locks.length < mostBlocks) await claimBlock();
    const port = ports.shift();
    if (port === undefined) break;
    ports.push(port);
    neverGiven = Math.max(0, neverGiven - 1);
    const server = await listenOn(port);
    if (server === undefined) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
  throw new Error(
    `no port of loopback is free outside of the ephemeral range ${ephemeralRange().join(" to ")}`,
  );
}

/** Owns one block more, if there is one that no process owns. */
async function claimBlock(): Promise<void> {
  const [lowest, highest] = ephemeralRange();
  const firsts: number[] = [];
  for (let first = lowestPort; first + blockSize - 1 <= highestPort; first += blockSize) {
    if (first + blockSize - 1 < lowest || first > highest) firsts.push(first);
  }
  for (const [at] of firsts.entries()) {
    const first = firsts[(process.pid + at) % firsts.length] ?? lowestPort;
    const lock = await listenOn(first);
    if (lock === undefined) continue;
    locks.push(lock.unref());
    ports.unshift(...Array.from({ length: blockSize - 1 }, (_, offset) => first + 1 + offset));
    neverGiven = blockSize - 1;
    return;
  }
}

/** Ports that the kernel gives to outgoing connections; where it does not say, those of Linux and macOS together. */
function ephemeralRange(): [lowest: number, highest: number] {
  try {
    const range = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8")
      .trim()
      .split(/\s+/)
      .map(Number);
    return [range[0] ?? 32_768, range[1] ?? highestPort];
  } catch {
    return [32_768, highestPort];
  }
}

async function listenOn(port: number): Promise<Server | undefined> {
  return await new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(undefined);
      else reject(error);
    });
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () => resolve(server));
  });
}
