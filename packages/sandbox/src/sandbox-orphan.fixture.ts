import { openSandbox } from "./index.ts";
import { processes } from "./process-table.fixture.ts";

// A process without privileges whose supervisor is killed while something has run away from it: what
// is left must not meet the next program. Arguments: a directory and the launcher. Writes what became of both programs.
const [, , directory = "", launcherPath = ""] = process.argv;
const signal = new AbortController().signal;

function killSupervisor(): void {
  for (const { id, parentId } of processes()) {
    if (parentId === process.pid) process.kill(id, "SIGKILL");
  }
}

const events: string[] = [];
const opening = await openSandbox({
  tiers: ["sbx"],
  directory,
  launcherPath,
  slots: 1,
  warm: 0,
  onEvent: ({ event }) => events.push(event),
});
if (!opening.ok) throw new Error(JSON.stringify(opening.findings));
const { sandbox } = opening;
const runaway =
  "setsid bash -c 'for i in {1..100}; do echo here > trace; sleep 0.05; done' & sleep 0.2; echo away; sleep 60";
const left = await sandbox.run({
  program: { runtime: "bash", code: runaway },
  signal,
  onOutput: killSupervisor,
});
const next = await sandbox.run({ program: { runtime: "bash", code: "sleep 0.3; ls -A" }, signal });
await sandbox.close();
process.stdout.write(
  `${JSON.stringify({ left: left.files, next: [next.status, next.stdout], events })}\n`,
);
