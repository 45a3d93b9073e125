import type { EngineEvent, ModelChunk } from "@larkline/protocol";

/** Code of the warning that voids all deltas of the running step: its answer begins anew. */
export const answerRestarted = "answer_restarted";

/** The event of a chunk that is shown while the model generates; undefined for everything else and for empty deltas. */
export function deltaEventOf(chunk: ModelChunk): EngineEvent | undefined {
  switch (chunk.type) {
    case "text_delta":
    case "thinking_delta":
      return chunk.text === "" ? undefined : { type: chunk.type, text: chunk.text };
    case "restart":
      return { type: "warning", code: answerRestarted, message: "The answer begins anew.", detail: chunk.model };
    default:
      return undefined;
  }
}
