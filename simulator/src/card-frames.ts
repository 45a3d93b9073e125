import type { CardFrameMode, SimCardFrame } from "./card-view.ts";

/** The texts that streamed elements have shown, in order. */
export interface CardFrames {
  /** Notes the next text of an element; it types on when the text on the card is a prefix of it. */
  add(frame: { elementId: string; text: string; shown: string; at: number }): void;
  list(): SimCardFrame[];
}

/** Texts that continue each other: all are prefixes of the last, so only that one is kept. */
interface Run {
  text: string;
}

interface Frame {
  elementId: string;
  mode: CardFrameMode;
  run: Run;
  length: number;
  at: number;
}

export function createCardFrames(): CardFrames {
  const frames: Frame[] = [];
  const runs = new Map<string, Run>();
  return {
    add({ elementId, text, shown, at }) {
      const mode = text.startsWith(shown) ? "typewriter" : "replace";
      const running = runs.get(elementId);
      const run = running !== undefined && text.startsWith(running.text) ? running : { text };
      run.text = text;
      runs.set(elementId, run);
      frames.push({ elementId, mode, run, length: text.length, at });
    },
    list: () =>
      frames.map(({ elementId, mode, run, length, at }) => ({ elementId, text: run.text.slice(0, length), mode, at })),
  };
}
