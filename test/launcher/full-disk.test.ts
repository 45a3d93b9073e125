import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";

const service = fileURLToPath(new URL("../../infra/dev/launcher/service.mjs", import.meta.url));

/** Starts a service the way `npm start` does, and says what becomes of it and of its lines. */
const launcher = `
import { startService } from ${JSON.stringify(service)};
const started = startService({ name: "noisy", args: [process.argv[2]], env: {}, onLine: (line) => console.log(line) });
console.log("ended with", await started.exited);
`;

/** The second line comes when the first has been dealt with: a full disk shows itself only after the write. */
const noisy = `
console.log(JSON.stringify({ level: "info", msg: "quiet" }));
setTimeout(() => console.log(JSON.stringify({ level: "warn", msg: "loud" })), 200);
`;

describe.runIf(process.platform === "linux")("a log on a full disk", () => {
  it("ends neither the launcher nor the service, and is reported once", async () => {
    const folder = mkdtempSync(join(tmpdir(), "larkline-full-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    mkdirSync(join(folder, "logs"));
    symlinkSync("/dev/full", join(folder, "logs", "noisy.log"));
    for (const [name, code] of Object.entries({ "launcher.mjs": launcher, "noisy.mjs": noisy })) {
      writeFileSync(join(folder, name), code);
    }
    const run = await promisify(execFile)(
      process.execPath,
      [join(folder, "launcher.mjs"), join(folder, "noisy.mjs")],
      {
        env: { PATH: process.env["PATH"], LARKLINE_DATA_DIR: folder, LANG: "C" },
      },
    );
    expect(run.stdout.trim().split("\n")).toEqual([
      "the log of noisy cannot be written (ENOSPC); its lines are dropped until it can.",
      "[noisy] warn  loud",
      "ended with 0",
    ]);
  });
});
