import type { ModelFault, ModelScript, NormalisedRequest, ScriptedReply } from "@larkline/testkit";
import type { createRandom } from "./random.ts";

/** What goes wrong at model vendors every day. */
const faults: readonly ModelFault[] = [
  { kind: "status", status: 529, type: "overloaded_error" },
  { kind: "status", status: 500 },
  { kind: "status", status: 429, headers: { "retry-after": "1" } },
  { kind: "hang", afterFrames: 0 },
  { kind: "hang", afterFrames: 3 },
  { kind: "cut", afterFrames: 0 },
  { kind: "cut", afterFrames: 3 },
  { kind: "end", afterFrames: 2 },
  { kind: "error_event", afterFrames: 2, type: "overloaded_error", message: "Overloaded" },
  { kind: "silent" },
  { kind: "endless", afterFrames: 3 },
];

/** Limits under which a silent model is given up, and an endless one cut, while a test waits. */
export const weatherLimits = { modelSilenceMs: 4_000, stepBytes: 40_000 };

/** A model that can be set to fail for a while: each question once, so that trying again helps. */
export interface ModelWeather {
  script: ModelScript;
  /** The next requests of so many questions fail. */
  worsen(count: number): void;
  /** How many have failed. */
  failed(): number;
}

function questionOf({ messages }: NormalisedRequest): string {
  return messages.findLast(({ role, text }) => role === "user" && text !== "")?.text ?? "";
}

export function createModelWeather(
  fair: ModelScript,
  random: ReturnType<typeof createRandom>,
): ModelWeather {
  const hit = new Set<string>();
  let due = 0;
  // One after the other, so that none is left out.
  let nextFault = random.below(faults.length);
  const faultFor = ({ calls }: ScriptedReply): ModelFault => {
    nextFault = (nextFault + 1) % faults.length;
    const fault = faults[nextFault] ?? { kind: "silent" };
    // A call that is cut is not run and the turn ends in a note: only an answer is one all the same.
    return fault.kind === "endless" && calls !== undefined ? faultFor({}) : fault;
  };
  return {
    script: async (request) => {
      const question = questionOf(request);
      const reply = await fair(request);
      if (due === 0 || hit.has(question)) return reply;
      due -= 1;
      hit.add(question);
      return { ...reply, fault: faultFor(reply) };
    },
    worsen: (count) => {
      due += count;
    },
    failed: () => hit.size,
  };
}
