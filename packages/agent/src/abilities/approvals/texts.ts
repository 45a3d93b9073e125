import type { ReplyLanguage } from "@larkline/protocol";
import { filledText, type NoticeValues } from "../../texts/index.ts";

// What people read of approvals, in both languages. The cards have texts of their own (packages/feishu/src/approvals).

const texts = {
  approvalNeeded: {
    zh: "工具 {tool} 需要有人批准后才能执行。",
    en: "The tool {tool} needs a person's approval before it runs.",
  },
  addressAsked: {
    zh: "读取外部内容后，模型要访问没有人提到过的地址：{addresses}。地址里可能带有对话中的内容，请确认后再批准。",
    en: "After reading text from outside, the model wants to reach an address that no person here has named: {addresses}. It may carry what was said here, so look at it before you approve.",
  },
  riskFound: {
    zh: "操作内容有风险：{patterns}。",
    en: "What it is going to do is risky: {patterns}.",
  },
  outcomeUnknown: {
    zh: "{tool} 已开始执行，但结果未知，可能已经生效。请检查后决定如何处理。",
    en: "{tool} was started and its outcome is unknown: it may have taken effect. Please check, then decide.",
  },
} as const satisfies Record<string, Record<ReplyLanguage, string>>;

/** The text in one language. Values are cut to size and to one line. */
export function approvalText(
  name: keyof typeof texts,
  language: ReplyLanguage,
  values: NoticeValues,
): string {
  return filledText(texts[name][language], values);
}
