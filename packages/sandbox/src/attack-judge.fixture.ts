/*
 * Runs the attacks against one place and prints a line for each: a process of its own, so that it can
 * have a network of its own, and so that nothing an attack does reaches the tests.
 */
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AttackedRunner, isContained } from "./attack-attacked-runner.fixture.ts";
import type { AttackCase, AttackEvidence } from "./attack-case.fixture.ts";
import { attackCases } from "./attack-cases.fixture.ts";
import type { AttackedPlace } from "./attack-place.fixture.ts";
import type { AttackReply } from "./attack-runner.fixture.ts";
import { type AttackTargets, placeTargets } from "./attack-targets.fixture.ts";
import { AttackWatch } from "./attack-watch.fixture.ts";
import { buildLauncher } from "./sandbox-place.fixture.ts";
import { limitsFrom } from "./sandbox.ts";

/** What one process of the judge is asked to do. */
export interface JudgeOrder {
  place: Omit<AttackedPlace, "directory" | "launcherPath">;
  /** Runs the runner under another user; the judge must be root. */
  uid?: number;
  /** Attacks at the same time. */
  concurrency: number;
  /** Only these attacks. */
  only?: readonly string[];
}

/** One cell of the matrix. */
export interface AttackVerdict {
  id: string;
  verdict: "held" | "out" | "not run";
  /** How it got out, or why it was not run. */
  finding: string;
  /** How the programs ended. */
  statuses: string[];
  /** They ended as the table says. */
  expected: boolean;
  ms: number;
}

const order = JSON.parse(process.argv[2] ?? "") as JudgeOrder; // written by the suite
const contained = isContained(order.place.level);
const limits = limitsFrom({
  wallMs: 60_000,
  cpuSeconds: 10,
  memoryMb: 128,
  processes: 64,
  openFiles: 256,
  diskMb: 32,
});
const watch = new AttackWatch();
const root = mkdtempSync(join(tmpdir(), "larkline-attack-"));
chmodSync(root, 0o711);

const launcherPath = contained ? buildLauncher(root) : undefined;

let runnerCount = 0;
async function startRunner(): Promise<AttackedRunner> {
  runnerCount += 1;
  const directory = join(root, `runner-${runnerCount}`);
  mkdirSync(directory, { mode: 0o711 });
  if (order.uid !== undefined) chownSync(directory, order.uid, order.uid);
  const runner = new AttackedRunner({
    place: { ...order.place, directory, launcherPath },
    uid: order.uid,
  });
  const ready = await runner.answer("ready", 60_000);
  if (typeof ready !== "string" && "ready" in ready && ready.ready) return runner;
  await runner.end(true);
  throw new Error(
    typeof ready === "string" ? ready : "reason" in ready ? ready.reason : "it did not start",
  );
}

function killMarked(mark: string, except: number): void {
  for (const { id } of watch.marked(mark)) {
    if (id === except) continue;
    try {
      process.kill(id, "SIGKILL");
    } catch {
      // It has ended by itself.
    }
  }
}

/** Programs that a call left behind. In the uncontained places the runner and its pool live on by design. */
function remainingOf(mark: string, runner: number): number {
  const found = watch.marked(mark).filter(({ id }) => id !== runner);
  return (contained ? found : found.filter(({ parentId }) => parentId !== runner)).length;
}

function resultsOf(reply: AttackReply): AttackEvidence["results"] {
  return reply.results.map(({ files, ...rest }) => ({
    ...rest,
    files: files.map(({ name, base64 }) => ({ name, bytes: Buffer.from(base64, "base64") })),
  }));
}

function verdictOf(attack: AttackCase, evidence: AttackEvidence): AttackVerdict {
  const { results, elapsedMs } = evidence;
  const finding = attack.gotOut(evidence);
  const statuses = results.map(({ status }) => status);
  const expected = attack.programs.every(({ ends }, index) =>
    ends.some((status) => status === statuses[index]),
  );
  const details = results.map(({ status, error = "", stderr }) =>
    `${status}: ${error} ${stderr}`.trim().slice(0, 300),
  );
  return {
    id: attack.id,
    verdict: finding === undefined ? "held" : "out",
    finding: finding ?? (expected ? "" : details.join(" | ")),
    statuses,
    expected,
    ms: Math.round(elapsedMs),
  };
}

async function observe(
  attack: AttackCase,
  runner: AttackedRunner,
  targets: AttackTargets,
): Promise<AttackVerdict> {
  const { aim, hits, changes } = targets;
  const { programs } = attack;
  const seen = watch.follow(aim);
  const startedMs = performance.now();
  const wallMs = programs.reduce((total, program) => total + (program.wallMs ?? limits.wallMs), 0);
  // Where nothing holds, many attacks never end.
  const answer = runner.answer(
    aim.mark,
    contained ? wallMs + 120_000 : Math.min(wallMs, 15_000) + 2_500,
  );
  runner.send({ aim, programs, parallel: attack.parallel === true, limits });
  const reply = await answer;
  const elapsedMs = performance.now() - startedMs;
  await new Promise((resolve) => setTimeout(resolve, attack.lingerMs ?? 20));
  seen.stop();
  const remaining = remainingOf(aim.mark, runner.pid);
  killMarked(aim.mark, runner.pid);
  if (typeof reply !== "string" && "results" in reply && !runner.dead) {
    const { peakTasks, peakMb } = seen;
    const { progress, runner: report } = reply;
    const results = resultsOf(reply);
    return verdictOf(attack, {
      aim,
      limits,
      results,
      progress,
      elapsedMs,
      hits,
      peakTasks,
      peakMb,
      changes: changes(),
      remaining,
      runner: report,
    });
  }
  const finding =
    typeof reply === "string" ? reply : "threw" in reply ? reply.threw : "the runner died";
  return {
    id: attack.id,
    verdict: "out",
    finding,
    statuses: [],
    expected: false,
    ms: Math.round(elapsedMs),
  };
}

async function judge(attack: AttackCase, runner: AttackedRunner): Promise<AttackVerdict> {
  const targets = await placeTargets(attack, {
    runner: runner.pid,
    directory: root,
    owner: order.uid,
  });
  try {
    return await observe(attack, runner, targets);
  } finally {
    await targets.close();
  }
}

function say(verdict: AttackVerdict): void {
  process.stdout.write(`${JSON.stringify(verdict)}\n`);
}

function notRun(attack: AttackCase, finding: string): void {
  say({ id: attack.id, verdict: "not run", finding, statuses: [], expected: false, ms: 0 });
}

/** Works a list off, `width` attacks at a time. */
async function inLanes<T>(
  list: readonly T[],
  width: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const rest = [...list];
  const lane = async (): Promise<void> => {
    for (let item = rest.shift(); item !== undefined; item = rest.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: width }, lane));
}

/** One runner takes them all; where it dies, each attack that was under way is repeated alone. */
async function judgeContained(attacks: readonly AttackCase[]): Promise<void> {
  let runner: AttackedRunner | undefined = await startRunner();
  const alone = attacks.filter((attack) => attack.alone === true);
  const together = attacks.filter((attack) => attack.alone !== true);
  await inLanes(together, order.concurrency, async (attack) => {
    if (runner === undefined || runner.dead) return void alone.push(attack);
    const verdict = await judge(attack, runner);
    if (runner.dead) alone.push(attack);
    else say(verdict);
  });
  for (const attack of alone) {
    if (runner.dead) runner = await startRunner();
    say(await judge(attack, runner));
  }
  await runner.end(true);
}

/** Each attack has a runner of its own: most of them kill or spoil it. */
async function judgeUncontained(attacks: readonly AttackCase[]): Promise<void> {
  await inLanes(attacks, order.concurrency, async (attack) => {
    if (attack.neverUncontained === true) {
      return notRun(attack, "it would end more than the runner");
    }
    const runner = await startRunner();
    say(await judge(attack, runner));
    await runner.end(false);
  });
}

/** Removes the working folder. A slot of the sandbox that has just ended may still have its files mounted there for a moment. */
async function removeRoot(): Promise<void> {
  for (let left = 40; ; left -= 1) {
    try {
      rmSync(root, { recursive: true, force: true });
      return;
    } catch (error) {
      if (left === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
  }
}

process.on("SIGTERM", () => {
  rmSync(root, { recursive: true, force: true });
  process.exit(1);
});
const attacks = attackCases.filter(({ id }) => order.only?.includes(id) ?? true);
try {
  await (contained ? judgeContained(attacks) : judgeUncontained(attacks));
} catch (error) {
  process.stdout.write(
    `${JSON.stringify({ unavailable: error instanceof Error ? error.message : String(error) })}\n`,
  );
} finally {
  await removeRoot();
}
process.exit(0);
