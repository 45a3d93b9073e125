import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

it("a process whose event loop stands still ends, and says what it worked on", async () => {
  const file = fileURLToPath(new URL("./stalled-process.fixture.ts", import.meta.url));
  const child = spawn(process.execPath, [file], { stdio: ["ignore", "pipe", "inherit"] });
  const [output, [code, signal]] = await Promise.all([text(child.stdout), once(child, "exit")]);
  expect([code, signal]).toEqual([null, "SIGKILL"]);
  expect(JSON.parse(output)).toMatchObject({
    level: "error",
    service: "stalled",
    pid: child.pid,
    atWork: "cli_x.oc_y-7",
    msg: "the event loop stood still for 1 s: this process ends",
  });
});
