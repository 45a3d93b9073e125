import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { createInterface } from "node:readline";
import { expect, it, onTestFinished } from "vitest";
import { freePort } from "./free-port.ts";
import { startRedis } from "./redis.ts";

const rangeFile = "/proc/sys/net/ipv4/ip_local_port_range";

/** More than a block holds, so that a process owns several. */
const portsOfEach = 100;

/** A process that asks for ports and lives on, as a worker of the test runner does. */
async function portsOfProcess(): Promise<number[]> {
  const script = `
    import { freePort } from ${JSON.stringify(new URL("free-port.ts", import.meta.url).href)};
    const ports = await Promise.all(Array.from({ length: ${portsOfEach} }, async () => await freePort()));
    console.log(JSON.stringify(ports));
    process.stdin.resume();
  `;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  for await (const line of createInterface({ input: child.stdout })) {
    return JSON.parse(line) as number[];
  }
  throw new Error("the process ended without ports");
}

it("gives processes that ask at once ports of their own, none of them one of an outgoing connection", async () => {
  const all = (await Promise.all(Array.from({ length: 4 }, portsOfProcess))).flat();
  all.push(...(await Promise.all(Array.from({ length: portsOfEach }, freePort))));
  expect(new Set(all).size).toBe(5 * portsOfEach);
  expect(Math.min(...all)).toBeGreaterThan(1_023);
  expect(Math.max(...all)).toBeLessThan(65_536);
  if (!existsSync(rangeFile)) return; // no kernel of Linux
  const [lowest = 0, highest = 0] = readFileSync(rangeFile, "utf8").trim().split(/\s+/).map(Number);
  expect(all.filter((port) => port >= lowest && port <= highest)).toEqual([]);
});

/** A server on the port that comes after one that was just given, and that port. */
async function listenBehind(): Promise<{ other: Server; next: number }> {
  for (;;) {
    const next = (await freePort()) + 1;
    const other = createServer();
    const isListening = await once(other.listen(next, "127.0.0.1"), "listening").then(
      () => true,
      () => false, // the last one of a block: the next block may be another process's
    );
    if (isListening) return { other, next };
  }
}

it("skips a port on which another process listens", async () => {
  const { other, next } = await listenBehind();
  onTestFinished(() => void other.close());
  expect(await freePort()).not.toBe(next);
});

it("gives a port on which a killed server can start again, however many connections were opened meanwhile", async () => {
  const port = await freePort();
  const first = await startRedis({ port });
  onTestFinished(async () => await first.stop());
  const ended = once(first.process, "exit");
  first.process.kill("SIGKILL");
  await ended;
  // Connections to others, each with a source port from the kernel; and clients that look for the dead server.
  const other = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void other.close());
  await once(other, "listening");
  const address = other.address();
  const otherPort = typeof address === "object" ? (address?.port ?? 0) : 0;
  for (let at = 0; at < 200; at += 1) {
    const outgoing = connect(otherPort, "127.0.0.1");
    onTestFinished(() => void outgoing.destroy());
    await once(outgoing, "connect");
    expect(outgoing.localPort).not.toBe(port);
    const looking = connect(port, "127.0.0.1");
    const [refused] = (await once(looking, "error")) as [NodeJS.ErrnoException];
    expect(refused.code).toBe("ECONNREFUSED"); // and never a connection to itself
  }
  const second = await startRedis({ port });
  onTestFinished(async () => await second.stop());
  expect(second.port).toBe(port);
});
