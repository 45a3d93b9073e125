import {
  defineTool,
  type HandlerTool,
  type ToolContext,
  type ToolDefinition,
} from "@larkline/tool-kit";
import { type Static, type TObject, type TProperties, Type } from "typebox";
import { type Platform, platformOf, type Remedies, type Settings } from "./platform.ts";

// What the tools of this package have in common.

/**
 * How far the calls of a tool reach, which decides whether a person is asked: not for what it reads (`reads`) or makes
 * for the person alone (`own`); for what others see, too (`shared`); each time, and loudly, for what leaves in the
 * person's name (`sends`) or cannot be undone (`destroys`).
 */
type Reach = "reads" | "own" | "shared" | "sends" | "destroys";

const asking = {
  reads: { requiresApproval: false, risk: "low" },
  own: { requiresApproval: false, risk: "low" },
  shared: { requiresApproval: true, risk: "medium" },
  sends: { requiresApproval: true, risk: "high" },
  destroys: { requiresApproval: true, risk: "high" },
} as const;

interface WorkTool<P extends TProperties> extends Pick<
  ToolDefinition<TObject>,
  | "name"
  | "description"
  | "effect"
  | "repeatMs"
  | "looks"
  | "timeoutMs"
  | "title"
  | "summary"
  | "scopes"
  | "savesFiles"
> {
  input: P;
  reach: Reach;
  run(input: Static<TObject<P>>, platform: Platform, context: ToolContext): unknown;
}

/** A tool that acts as the person who asks. `remedies`: what the platform's codes mean here. */
export function workTool<const P extends TProperties>(
  settings: Settings,
  remedies: Remedies,
  { input, reach, run, ...facts }: WorkTool<P>,
): HandlerTool {
  return defineTool({
    timeoutMs: 120_000,
    ...facts,
    ...asking[reach],
    input: Type.Object(input, { additionalProperties: false }),
    as: "person",
    addresses: [],
    isolation: "inline",
    run: (given, context) => {
      if (asking[reach].risk === "high" && !isShownWhole(given)) {
        throw new Error(
          "Nothing was done: this is too much for the card on which the person checks it. Split it into several calls.",
        );
      }
      // Callers check the input against the schema first.
      return run(given as Static<TObject<P>>, platformOf(context, settings, remedies), context);
    },
  });
}

/** Whether the card of an approval shows all of the input: what the person has not seen neither leaves nor goes. */
function isShownWhole(input: unknown): boolean {
  const shown = JSON.stringify(input, undefined, 2);
  return (
    JSON.stringify(input).length <= 3_800 &&
    shown.length <= 5_900 &&
    Buffer.byteLength(shown) <= 7_500
  );
}
