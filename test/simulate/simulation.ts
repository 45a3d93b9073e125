import type { ModelScript, NormalisedMessage, ScriptedReply } from "@larkline/testkit";
import { createRandom, type SeededRandom } from "../chaos/random.ts";
import { lastSaid, obedientModel } from "../system/model-script.ts";
import { Driver } from "./driver.ts";
import { Faults, type ModelTrouble } from "./faults.ts";
import { brokenPromises, chronicle, isAnswered, type Seen } from "./history.ts";
import { startPeople } from "./people.ts";
import type { RedisClock } from "./redis-time.ts";
import { time } from "./time.ts";
import { runs } from "./tools.ts";
import { World, type Kind } from "./world.ts";

/** How one seed went. */
export interface Outcome {
  seed: number;
  /** What was promised and not kept; none: all is well. */
  broken: string[];
  faults: readonly string[];
  /** What people saw, and what the processes said. */
  history: string[];
  log: readonly string[];
  simulatedMs: number;
  /** Every piece of traffic. */
  trace: readonly string[];
}

const kinds: readonly Kind[] = ["ingress", "agent-worker", "agent-worker", "tool-runner"];
const startMs = 30_000;
/** How long people write at most, deliveries that are tried again included. */
const writingMs = 120_000;
/** How long after that the last answer may come. */
const patienceMs = 240_000;
/** How long the run continues after that, to see what comes too often. */
const afterwardsMs = 2_500;

/** Runs one seed in an empty Redis. */
export async function simulate(
  seed: number,
  clock: RedisClock,
  redisPort: number,
): Promise<Outcome> {
  // Each part has chance of its own: what people do does not depend on how the product uses its chance.
  const chanceOf = (part: number): SeededRandom => createRandom(seed * 16 + part);
  const trouble: ModelTrouble = { next: [], kill: () => undefined };
  const deaths: string[] = [];
  time.begin();
  runs.length = 0;
  await clock.begin();
  const driver = new Driver(clock, chanceOf(1));
  const world = await World.start(driver, { redisPort, script: troubled(trouble, deaths) });
  const isReady = await startAll(world, driver);
  const faults = new Faults(world, chanceOf(2), trouble);
  const actions = startPeople(world, chanceOf(3));
  const seen: Seen = { world, actions, runs, deaths, faults: faults.happened };
  const until = async (isOver: () => boolean, ms: number): Promise<boolean> =>
    await driver.run(isOver, time.now() + ms, faults.pass);
  await until(() => actions.isOver(), writingMs);
  await until(() => isAnswered(seen), patienceMs);
  faults.end();
  await until(() => false, afterwardsMs);
  const broken = isReady ? brokenPromises(seen) : ["the processes did not start"];
  const history = chronicle(seen);
  await world.close();
  const { trace } = driver;
  return {
    seed,
    broken,
    faults: faults.happened,
    history,
    log: world.log,
    simulatedMs: time.now(),
    trace,
  };
}

/** Starts one process after the other. */
async function startAll(world: World, driver: Driver): Promise<boolean> {
  for (const kind of kinds) {
    let isReady = false;
    const { started } = await world.begin(kind);
    void started.then(() => (isReady = true));
    if (!(await driver.run(() => isReady, startMs))) return false;
  }
  return true;
}

/**
 * A model that does what the last message says, but for the troubles that it is in. `deaths` gets the keys of messages
 * that have killed a process, once for each.
 */
function troubled(trouble: ModelTrouble, deaths: string[]): ModelScript {
  return async (request) => {
    const messages = request.messages.map(asLastSaid);
    const [, deadly] = /\bm(\d\d) deadly/.exec(lastSaid(messages)) ?? [];
    if (deadly !== undefined) {
      deaths.push(deadly);
      trouble.kill(Number(request.headers["host"]?.split(":")[1]));
      return { fault: { kind: "silent" } };
    }
    const said = await obedientModel({ ...request, messages });
    const reply = request.system.startsWith("expert") ? byExpert(said) : said;
    switch (trouble.next.shift()) {
      case "status":
        return { fault: { kind: "status", status: 529 } };
      case "cut":
        return { ...reply, fault: { kind: "cut", afterFrames: 3 } };
      default:
        return reply;
    }
  };
}

function byExpert(reply: ScriptedReply): ScriptedReply {
  const { text } = reply;
  return text === undefined ? reply : { ...reply, text: [text, " by expert"].flat() };
}

/** Of what people have said in a row the last counts; when a turn continues that waited for people, what that one says. */
function asLastSaid(message: NormalisedMessage): NormalisedMessage {
  const { role, text, blocks = [text] } = message;
  const last = blocks.at(-1) ?? "";
  return role === "user"
    ? { ...message, text: last.replace(/^\[People have answered [^\n]*\n/, "") }
    : message;
}
