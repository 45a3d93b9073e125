import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";
import type { StdioChannel } from "./connection.ts";

const require = createRequire(import.meta.url);
const everything = require.resolve("@modelcontextprotocol/server-everything/dist/index.js");
const changing = fileURLToPath(new URL("changing-server.fixture.ts", import.meta.url));

/** Starts a reference server, or our own, as a plain process. */
export function openChannel(
  which: "everything" | "changing",
  started?: ChildProcess[],
): () => Promise<StdioChannel> {
  return async () => {
    const args = which === "everything" ? [everything, "stdio"] : [changing];
    const child = spawn(process.execPath, args, {
      stdio: ["pipe", "pipe", "ignore"],
      env: {},
    });
    started?.push(child);
    const ended = once(child, "exit").then(([code]) => `it exited with ${code}`);
    return await Promise.resolve({
      stdin: child.stdin,
      stdout: child.stdout,
      ended,
      close: async () => {
        child.kill("SIGKILL");
        await ended;
      },
    });
  };
}

/** Starts the reference server behind Streamable HTTP. */
export async function startHttpServer(): Promise<{ url: URL; child: ChildProcess }> {
  const port = await freePort();
  const child = spawn(process.execPath, [everything, "streamableHttp"], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { PORT: String(port) },
  });
  await new Promise<void>((resolve, reject) => {
    child.stderr.on("data", (chunk: Buffer) => {
      if (chunk.toString().includes("listening")) resolve();
    });
    child.once("exit", (code) => reject(new Error(`the server exited with ${code}`)));
  });
  return { url: new URL(`http://127.0.0.1:${port}/mcp`), child };
}
