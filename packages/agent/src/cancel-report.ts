import type { CallState, CancelReason, ReplyLanguage, ShownTool, TurnState } from "@larkline/protocol";
import { inlineCode, noticeText } from "./notice.ts";
import { shownOf } from "./shown-so-far.ts";
import { isOpen } from "./tool-round.ts";

const words = {
  zh: {
    done: "已完成：",
    failed: "执行失败：",
    maybe: "被中断，可能已经生效，请检查：",
    harmless: "被中断，没有影响：",
    notRun: "没有执行：",
    earlier: (count: number) => `更早的 ${count} 次调用`,
    between: "、",
  },
  en: {
    done: "Already finished: ",
    failed: "Ended in an error: ",
    maybe: "Broken off, may have taken effect, please check: ",
    harmless: "Broken off, without effect: ",
    notRun: "Not run: ",
    earlier: (count: number) => `${count} earlier call${count === 1 ? "" : "s"}`,
    between: ", ",
  },
} as const;

const maxNameChars = 64;

/** Names with how often each occurs, in order of appearance. */
function counted(names: readonly string[]): string[] {
  const counts = Map.groupBy(names, (name) => name);
  return [...counts].map(
    ([name, all]) => `${inlineCode(name, maxNameChars)}${all.length > 1 ? ` ×${all.length}` : ""}`,
  );
}

function namesOf(items: readonly (CallState | ShownTool)[]): string[] {
  return counted(items.map(({ name }) => name));
}

/**
 * What a cancel left behind, of a turn whose calls are still open: why it ended, which calls had
 * finished, and which were broken off, told apart by whether they can have changed anything.
 */
export function cancelReport(turn: TurnState, reason: CancelReason, language: ReplyLanguage): string {
  const { done, failed, maybe, harmless, notRun, earlier, between } = words[language];
  const { tools, earlierTools } = shownOf(turn);
  const open = turn.calls.filter(isOpen);
  const handedOut = open.filter(({ state }) => state !== "waiting_approval");
  const lists: [string, string[]][] = [
    [
      done,
      [...(earlierTools > 0 ? [earlier(earlierTools)] : []), ...namesOf(tools.filter(({ state }) => state === "done"))],
    ],
    [failed, namesOf(tools.filter(({ state }) => state === "failed"))],
    [maybe, namesOf(handedOut.filter(({ effect }) => effect !== "pure"))],
    [harmless, namesOf(handedOut.filter(({ effect }) => effect === "pure"))],
    [notRun, namesOf(open.filter(({ state }) => state === "waiting_approval"))],
  ];
  const lines = lists
    .filter(([, names]) => names.length > 0)
    .map(([label, names]) => `- ${label}${names.join(between)}`);
  return [noticeText(reason, language), ...lines].join("\n");
}
