import { mkdirSync, writeFileSync } from "node:fs";
import {
  CallClaims,
  FinishedCall,
  HandoffAnswer,
  HandoffEntry,
  RunnerAnnouncement,
  ToolJob,
} from "@larkline/protocol/runner";
import { ToolAnnouncement, ReportedOutcome } from "@larkline/protocol/tool";
import {
  agentEventSchemas,
  chatMessageSchemas,
  StructuredMessage,
} from "@larkline/protocol/views/chat-messages";
import { finishJobScript } from "@larkline/store/queues";
import { runnerScripts } from "@larkline/store/runners";
import { root } from "./document.ts";

function formatted(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** The files beside docs/tool-protocol.md, as the code says they must be. */
export function protocolFiles(): Record<string, string> {
  const $schema = "https://json-schema.org/draft/2020-12/schema";
  return {
    "docs/tool-protocol/schemas.json": formatted({
      $schema,
      $defs: {
        RunnerAnnouncement,
        ToolAnnouncement,
        ToolJob,
        FinishedCall,
        CallClaims,
        ToolOutcome: ReportedOutcome,
        HandoffEntry,
        HandoffAnswer,
      },
    }),
    "docs/tool-protocol/chat-messages.json": formatted({
      $schema,
      $defs: { ...chatMessageSchemas, ...agentEventSchemas, StructuredMessage },
    }),
    "docs/tool-protocol/scripts.json": formatted({
      ...runnerScripts(),
      finish_job: finishJobScript,
    }),
  };
}

if (import.meta.main) {
  mkdirSync(`${root}/docs/tool-protocol`, { recursive: true });
  for (const [path, text] of Object.entries(protocolFiles())) {
    writeFileSync(`${root}/${path}`, text);
  }
}
