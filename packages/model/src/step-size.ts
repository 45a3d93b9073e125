import type { ModelChunk } from "@larkline/protocol";

/** What a tool call or a block of thinking costs besides its text: many empty ones must not be free. */
const pieceBytes = 64;

/** Counts the bytes of one step: text, thinking and tool arguments, with ids and what vendors attach. */
export class StepSize {
  #room: number;

  constructor(maxBytes: number) {
    this.#room = maxBytes;
  }

  /** Nothing more may be taken. */
  get isFull(): boolean {
    return this.#room <= 0;
  }

  /** The chunk, or as much of its text as there is room for. */
  take(chunk: ModelChunk): ModelChunk {
    switch (chunk.type) {
      case "text_delta":
        return { ...chunk, text: this.#fitting(chunk.text) };
      case "thinking_delta": {
        const { providerMetadata } = chunk;
        if (providerMetadata !== undefined) this.#room -= pieceBytes + JSON.stringify(providerMetadata).length;
        return { ...chunk, text: this.#fitting(chunk.text) };
      }
      case "tool_call_delta":
        if (chunk.id !== null || chunk.name !== null) {
          this.#room -= pieceBytes + (chunk.id ?? "").length + (chunk.name ?? "").length;
        }
        return { ...chunk, arguments: this.#fitting(chunk.arguments) };
      case "warning":
        this.#room -= pieceBytes;
        return chunk;
      default:
        return chunk;
    }
  }

  #fitting(text: string): string {
    const bytes = Buffer.byteLength(text);
    const { length } = text;
    if (bytes <= this.#room) {
      this.#room -= bytes;
      return text;
    }
    const room = Math.max(0, this.#room);
    this.#room = 0;
    // Cut between characters: what is left of the last one is no character.
    return length === 0
      ? ""
      : Buffer.from(text)
          .subarray(0, room)
          .toString("utf8")
          .replace(/\uFFFD+$/, "");
  }
}
