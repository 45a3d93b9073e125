import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { engineEventTypes } from "@larkline/protocol/event";
import { runMessages } from "@larkline/protocol/views/chat-view";
import { engineRecords } from "@larkline/protocol/views/engine-view";
import { runItems } from "@larkline/protocol/views/item-view";
import { EventLog } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { expect } from "vitest";

// What apps have emitted in the tests of a run, and in which file: the list that `npm test` ends with.

const variable = "LARKLINE_SEEN_FILE";

/** Run items by `type`; classes of chat messages. */
const itemTypes = [
  "message_output_item",
  "reasoning_item",
  "tool_call_item",
  "tool_call_output_item",
  "handoff_call_item",
  "handoff_output_item",
  "mcp_list_tools_item",
  "mcp_approval_request_item",
  "mcp_approval_response_item",
];
const messageTypes = [
  "TextMessage",
  "MultiModalMessage",
  "StopMessage",
  "ToolCallSummaryMessage",
  "HandoffMessage",
  "StructuredMessage",
  "ToolCallRequestEvent",
  "ToolCallExecutionEvent",
  "UserInputRequestedEvent",
  "MemoryQueryEvent",
  "ModelClientStreamingChunkEvent",
  "ThoughtEvent",
  "SelectSpeakerEvent",
  "CodeGenerationEvent",
  "CodeExecutionEvent",
];
const known = { event: engineEventTypes, item: itemTypes, message: messageTypes };
type Kind = keyof typeof known;

/** Why something is in no run. */
const absent: Readonly<Record<string, string>> = {
  "event usage": "stays with the engine (EE-10)",
};

/** Notes what a test has seen of apps. */
export function noteSeen(kind: Kind, types: Iterable<string>): void {
  const file = process.env[variable];
  if (file === undefined) return;
  const { testPath = "" } = expect.getState();
  const test = basename(testPath).replace(/\.test\.ts$/, "");
  const lines = [...new Set(types)].map(
    (type) => `${JSON.stringify([kind, type.replace(/\[.*/, ""), test])}\n`,
  );
  appendFileSync(file, lines.join(""));
}

/** Notes everything that is in the event logs of a system. */
export async function noteEmitted(redisUrl: string): Promise<void> {
  if (process.env[variable] === undefined) return;
  const redis = connectRedis(redisUrl);
  const log = new EventLog({ redis, namespace: "larkline" });
  try {
    for (const key of await redis.keys("*:ev:*")) {
      const records = await log.read(key.slice(key.indexOf(":ev:") + 4), 0, 10_000);
      for (const [runId, own] of Map.groupBy(records, (record) => record.runId)) {
        const run = { runId, sessionId: "s", agent: "default", startedAtMs: 0 };
        noteSeen(
          "event",
          engineRecords(run, own).map(({ event }) => event.type),
        );
        noteSeen(
          "item",
          runItems(run, own).map(({ type }) => type),
        );
        noteSeen(
          "message",
          runMessages(run, own).map(({ type }) => type),
        );
      }
    }
  } finally {
    await closeRedis(redis);
  }
}

/** Begins the notes of a run of tests; returns what prints the list at its end, if there is anything to tell. */
export default function setup(): () => void {
  const file = join(mkdtempSync(join(tmpdir(), "larkline-seen-")), "seen");
  process.env[variable] = file;
  return () => {
    const text = existsSync(file) ? readFileSync(file, "utf8") : "";
    rmSync(dirname(file), { recursive: true, force: true });
    if (text !== "") console.log(listOf(text));
  };
}

function listOf(text: string): string {
  const seen = new Map<string, Set<string>>();
  for (const line of text.trimEnd().split("\n")) {
    const [kind, type, test] = JSON.parse(line) as [string, string, string]; // by noteSeen
    const key = `${kind} ${type}`;
    seen.set(key, (seen.get(key) ?? new Set()).add(test));
  }
  const lines = Object.entries(known).flatMap(([kind, types]) =>
    types.map((type) => {
      const key = `${kind} ${type}`;
      const tests = seen.get(key);
      return `  ${key}: ${tests === undefined ? (absent[key] ?? "-") : firstOf([...tests].toSorted())}`;
    }),
  );
  return ["seen of apps, by test:", ...lines].join("\n");
}

/** Three names say that it is tested and where to look; all of them would hide what failed. */
function firstOf(tests: string[]): string {
  const more = tests.length > 3 ? ` and ${tests.length - 3} more` : "";
  return tests.slice(0, 3).join(", ") + more;
}
