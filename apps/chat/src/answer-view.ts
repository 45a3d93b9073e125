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
    default:
      return "";
  }
}
