import { openSandbox, type SandboxTier } from "./index.ts";

// A process with a sandbox that is busy in every way, to be killed by a test. Arguments: the tiers
// with commas, directory, launcher, a mark for its processes and a directory to show them. Writes the findings, then what its programs write.
const [, , tiers = "", directory = "", launcherPath = "", mark = "", shown = ""] = process.argv;
const opening = await openSandbox({
  tiers: tiers.split(",") as SandboxTier[], // the test gives them
  directory,
  launcherPath,
  warm: 1,
});
process.stdout.write(
  `${JSON.stringify({ tier: opening.ok ? opening.sandbox.tier : "", findings: opening.findings })}\n`,
);
if (opening.ok && mark !== "") {
  const { sandbox } = opening;
  const signal = new AbortController().signal;
  const code = `setsid sleep ${mark} & (setsid sleep ${mark} &); echo left > file; echo running; sleep ${mark}`;
  const limits = { wallMs: 600_000 };
  const session = await sandbox.open({ command: "sleep", args: [mark], readable: [shown] });
  void sandbox.run({
    program: { runtime: "bash", code },
    limits,
    signal,
    onOutput: (_, text) => process.stdout.write(text),
  });
  void sandbox.run({ program: { runtime: "node", code: "for (;;);" }, limits, signal });
  await session.ended;
} else if (opening.ok) {
  const { sandbox } = opening;
  const code =
    "return [process.getuid(), require('node:child_process').execFileSync('echo', ['hi']).toString()]";
  const result = await sandbox.run({
    program: { runtime: "node", code },
    signal: new AbortController().signal,
  });
  await sandbox.close();
  process.stdout.write(`${JSON.stringify(result)}\n`);
}
