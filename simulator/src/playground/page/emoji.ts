import { node, type ViewNode } from "./view-node.ts";

/** The icon of a reaction of the platform, by emoji type ("Reaction emoji"). */
const reactionIcons: Readonly<Record<string, string>> = {
  Typing: "typing",
  OnIt: "check",
  OneSecond: "clock",
  THINKING: "typing",
  Get: "check",
  DONE: "done",
  OK: "check",
  CheckMark: "done",
  CrossMark: "failed",
  ERROR: "warning",
  THUMBSUP: "thumb",
};

/** The reaction that people can give here. */
export const offeredReaction = "THUMBSUP";

/** A reaction as its icon, where there is one, and its name. */
export function reactionView(emojiType: string): ViewNode[] {
  const icon = Object.hasOwn(reactionIcons, emojiType) ? reactionIcons[emojiType] : undefined;
  return [
    ...(icon === undefined ? [] : [node("span", { class: `icon icon-${icon}`, "aria-hidden": "true" })]),
    emojiType,
  ];
}

/** Signs of state that are drawn, so that they look the same on every machine. */
const signs: Readonly<Record<string, string>> = {
  "\u2705": "done",
  "\u274C": "failed",
  "\u23F3": "clock",
  "\u23F9": "stopped",
  "\u26A0": "warning",
};

/** Text with its signs of state drawn; what is copied or read aloud is the text. */
export function withSigns(text: string): ViewNode[] {
  return text
    .split(/([\u2705\u274C\u23F3]|[\u23F9\u26A0]\uFE0F?)/u)
    .filter((part) => part !== "")
    .map((part) => {
      const sign = part.length <= 2 ? signs[part.charAt(0)] : undefined;
      return sign === undefined ? part : node("span", { class: `sign icon-${sign}` }, [part]);
    });
}
