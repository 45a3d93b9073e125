import type { StreamFrame } from "@larkline/protocol";
import { previewOf, printable } from "./preview.ts";
import type { Texts } from "./texts.ts";

const answerRuler = "=".repeat(60);

/** The lines at the start of the program. */
export function openingText(texts: Texts): string {
  return `${texts.started}\n${"-".repeat(40)}\n`;
}

/** What stands before an answer. */
export function answerOpening(texts: Texts): string {
  return `\n${answerRuler}\n${texts.assistant}`;
}

/** What stands after an answer, however it ended. */
export function answerClosing(): string {
  return `\n${answerRuler}\n`;
}

/** Draws one answer. What a worker that died had told already is not drawn twice. */
export class AnswerView {
  readonly #texts: Texts;
  /** Text of this round stands on the screen. */
  #hasText = false;
  readonly #seen = new Set<string>();

  constructor(texts: Texts) {
    this.#texts = texts;
  }

  /** What the next frame adds to the screen. */
  draw(frame: StreamFrame): string {
    if ("name" in frame) {
      const key = `${frame.type} ${frame.id ?? ""}`;
      if (frame.id !== undefined && this.#seen.has(key)) return "";
      this.#seen.add(key);
    }
    if (frame.type === "restart" && !this.#hasText) return "";
    this.#hasText = frame.type === "assistant" || (this.#hasText && frame.type === "user_message");
    return frameText(frame, this.#texts);
  }
}

/** What a frame adds to the screen; empty for frames (and unknown types) that show nothing. */
export function frameText(frame: StreamFrame, texts: Texts): string {
  switch (frame.type) {
    case "assistant":
      return printable(frame.content);
    case "tool_call":
      return `\n\n${texts.calling(printable(frame.name))}\n`;
    case "tool_result":
      return `${texts.finished(printable(frame.name), printable(previewOf(frame.result)))}\n\n${texts.assistant}`;
    case "tool_error":
      return `${texts.failed(printable(frame.name), printable(previewOf(frame.error)))}\n\n${texts.assistant}`;
    case "error":
      return `\n${texts.error(printable(frame.message))}${answerClosing()}`;
    case "done":
      return answerClosing();
    case "restart":
      return `\n${texts.restarted}\n${texts.assistant}`;
    default:
      return "";
  }
}
