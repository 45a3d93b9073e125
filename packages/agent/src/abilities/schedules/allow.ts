import { textIn, type InboundMessage, type ReplyLanguage } from "@larkline/protocol";
import type { Schedule, StandingApproval } from "@larkline/protocol/schedule";
import { builtInRunner, type ToolAnnouncement } from "@larkline/protocol/tool";
import { Type, type Static } from "@larkline/protocol/type";
import { anything, definitionOf, standingProblem } from "../../permissions/standing.ts";
import type { StandingApprovals } from "../../permissions/policy.ts";
import { oneLine } from "../../texts/index.ts";
import type { OfferedTool } from "../../turn/facts.ts";

// What a schedule may do without asking. Its person allows it on the card that confirms the schedule; it ends with the
// schedule, with another task, when the tool is not the same any more, and after a time.

export const allowField = Type.Optional(
  Type.Array(
    Type.Object(
      {
        tool: Type.String({ minLength: 1, maxLength: 64 }),
        arguments: Type.Record(Type.String(), Type.Unknown(), {
          description:
            "Every argument that the call will have, with its value. `*` for the whole value leaves it open; within a text it stands for other words. Recipients, ids and addresses are always written out.",
        }),
      },
      { additionalProperties: false },
    ),
    {
      maxItems: 5,
      description:
        "Calls that its runs may make without asking, only where the person wants that. Calls of high risk are asked about each time.",
    },
  ),
);
type Wished = NonNullable<Static<typeof allowField>>;

/** Lifetime of a person's permission, ms. */
const holdsMs = 90 * 86_400_000;

/** The tools that a turn is offered, or the one of a name that runners announce. */
export type ToolOf = (name: string) => Pick<OfferedTool, "runner" | "announcement"> | undefined;

/** What is asked to be allowed, or why that cannot be. */
export function wantedAllowed(
  wished: Wished,
  toolOf: ToolOf,
  nowMs: number,
): { allowed: StandingApproval[] } | { problem: string } {
  const allowed: StandingApproval[] = [];
  for (const { tool: name, arguments: bounds } of wished) {
    const tool = toolOf(name);
    if (tool === undefined || tool.runner === builtInRunner) {
      return { problem: `allow: no tool '${name}' of a runner is offered` };
    }
    const problem = standingProblem(tool.announcement, bounds);
    if (problem !== undefined) return { problem: `allow: '${name}': ${problem}` };
    allowed.push(standingOf(tool.announcement, bounds, nowMs));
  }
  if (allowed.some((one) => isCut(one)) || !fitsCard(allowed)) {
    return {
      problem: "allow: this is more than a card can show: name fewer calls, or shorter values",
    };
  }
  return { allowed };
}

/** A person agrees to what they have read: the whole list, which cards show in so much room. */
const room = { characters: 330, bytes: 1_000 };

function fitsCard(allowed: readonly StandingApproval[]): boolean {
  return (["zh", "en"] as const).every((language) => {
    const text = allowedText(allowed, language);
    return text.length <= room.characters && Buffer.byteLength(JSON.stringify(text)) <= room.bytes;
  });
}

function isCut({ arguments: bounds }: StandingApproval): boolean {
  return Object.values(bounds).some((value) => shownValue(value) !== valueText(value));
}

function standingOf(
  tool: ToolAnnouncement,
  bounds: Record<string, unknown>,
  nowMs: number,
): StandingApproval {
  return {
    tool: tool.spec.name,
    ...(tool.title === undefined ? {} : { title: tool.title }),
    arguments: bounds,
    definition: definitionOf(tool),
    expiresAtMs: nowMs + holdsMs,
  };
}

const maxShownValue = 80;

/** What people read of it: a line for each tool. */
export function allowedText(allowed: readonly StandingApproval[], language: ReplyLanguage): string {
  return allowed.map((one) => `• ${lineOf(one, language)}`).join("\n");
}

function lineOf({ tool, title, arguments: bounds }: StandingApproval, language: ReplyLanguage) {
  const isChinese = language === "zh";
  const open = isChinese ? "任意" : "anything";
  const values = Object.entries(bounds).map(([name, value]) => {
    return `${name}${isChinese ? "：" : ": "}${value === anything ? open : shownValue(value)}`;
  });
  const name = title === undefined ? tool : textIn(title, language);
  if (values.length === 0) return name;
  return isChinese ? `${name}（${values.join("；")}）` : `${name} (${values.join("; ")})`;
}

function valueText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function shownValue(value: unknown): string {
  return oneLine(valueText(value), maxShownValue);
}

/** Names of the tools, for lists. */
export function allowedNames(
  allowed: readonly StandingApproval[],
  language: ReplyLanguage,
): string {
  const names = allowed.map(({ tool, title }) =>
    title === undefined ? tool : textIn(title, language),
  );
  return [...new Set(names)].join(language === "zh" ? "、" : ", ");
}

/**
 * What the run of a schedule may do without asking: nothing where the message is not its run as it is now, or where it
 * is paused. One that is done has its last run.
 */
export function standingOfRun(
  message: InboundMessage,
  known: { readonly schedule: Schedule; readonly state: string } | undefined,
  parts: InboundMessage["parts"],
): StandingApprovals | undefined {
  if (known === undefined || known.state === "paused") return undefined;
  const { id, app, owner, allowed = [] } = known.schedule;
  const isIts =
    message.schedule?.id === id && message.app === app && message.sender.id === owner.id;
  const isSame = JSON.stringify(message.parts) === JSON.stringify(parts);
  return isIts && isSame && allowed.length > 0
    ? { id: `${standingPrefix}${id}`, allowed }
    : undefined;
}

const standingPrefix = "schedule-";

/** Whether the id of a rule names what a schedule may do. */
export function isStandingId(id: string): boolean {
  return id.startsWith(standingPrefix);
}
