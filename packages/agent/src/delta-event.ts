import type { EngineEvent, ModelChunk } from "@larkline/protocol";

/**
 * The event of a chunk that is shown while model step `turnNumber` generates; undefined for everything
 * else and for empty deltas.
 */
export function deltaEventOf(chunk: ModelChunk, turnNumber: number): EngineEvent | undefined {
  switch (chunk.type) {
    case "text_delta":
    case "thinking_delta":
      return chunk.text === "" ? undefined : { type: chunk.type, text: chunk.text };
    case "restart":
      return { type: "step_restarted", turnNumber, model: chunk.model, reason: chunk.reason };
    default:
      return undefined;
  }
}
