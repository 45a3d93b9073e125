import { readdirSync, readFileSync } from "node:fs";
import type { Usage } from "@larkline/protocol/model-stream";
import {
  frame,
  type JsonObject,
  type ModelDialect,
  type ModelFault,
  type ScriptedReply,
} from "./model-server-script.ts";

/** An awkward answer in the words of each vendor interface that can give it: one stream for each request. */
export interface VendorAnswer {
  name: string;
  about: string;
  streams: Partial<Record<ModelDialect, readonly VendorStream[]>>;
  /** What the first request comes to, and those that continue its answer. */
  said: {
    text: string;
    calls?: { name: string; arguments: string }[];
    stopReason?: string;
    usage?: Usage;
    /** The error code it ends in. */
    failure?: string;
  };
  /** What a run over the whole path comes to, where a call is answered and a broken step asked again. */
  run: {
    reason: string;
    final: string;
    restarts: number;
    calls?: string[];
    model?: string;
    attempts?: number;
    outputTokens?: number;
    cacheReadTokens?: number;
  };
  /** Blocks and items that the next request sends back as they came. */
  returned?: Partial<Record<ModelDialect, JsonObject[]>>;
}

export interface VendorStream {
  events: readonly JsonObject[];
  /** How it goes wrong, after its events. */
  fault?: ModelFault;
}

const folder = new URL("../streams/", import.meta.url);

/** All awkward answers, by name of their file. */
export function vendorAnswers(): VendorAnswer[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith(".json"))
    .toSorted()
    .map((file) => {
      const text = readFileSync(new URL(file, folder), "utf8");
      return {
        name: file.replace(/\.json$/, ""),
        ...(JSON.parse(text) as Omit<VendorAnswer, "name">),
      }; // our own file
    });
}

/** A stream as the model server sends it. */
export function replyOfStream(
  dialect: ModelDialect,
  { events, fault }: VendorStream,
): ScriptedReply {
  const typed = dialect !== "openai-chat";
  const frames = events.map((event) => frame(event, typed ? String(event["type"]) : undefined));
  if (!typed && fault === undefined) frames.push("data: [DONE]\n\n");
  if (fault === undefined) return { frames };
  return { frames, fault: { afterFrames: frames.length, ...fault } as ModelFault }; // the fields of its kind
}
