import { textOf, type InboundMessage, type ReplyLanguage } from "@larkline/protocol";
import { textHead } from "./text-cut.ts";

/** What a person is told by the system itself: around an answer, or in place of one. */
export type NoticeName = keyof typeof notices;

/** What a notice fills in at `{name}`; each becomes one line. */
export type NoticeValues = Readonly<Record<string, string | number>>;

const notices = {
  empty: {
    zh: "模型没有给出任何回答，请换个说法再试一次。",
    en: "The model gave no answer. Please try again in other words.",
  },
  exhausted: {
    zh: "已达到最大步数，请求没有完成。",
    en: "Reached the maximum number of steps without completing the request.",
  },
  refusal: {
    zh: "模型拒绝回答这个请求。",
    en: "The model refused to answer this request.",
  },
  truncated: {
    zh: "回答达到长度上限，被截断了。",
    en: "The answer reached its length limit and was cut off.",
  },
  callCutOff: {
    zh: "回答达到长度上限，工具调用没有写完，因此没有执行任何操作。",
    en: "The answer reached its length limit before its tool call was complete, so nothing was run.",
  },
  callsDropped: {
    zh: "模型的回答没有正常结束，其中的工具调用没有执行。",
    en: "The answer did not end properly, so the tool calls in it were not run.",
  },
  stopped: { zh: "已停止。", en: "Stopped." },
  recalled: { zh: "消息已被撤回，处理已停止。", en: "The message was recalled, so I stopped working on it." },
  superseded: {
    zh: "收到了新的消息，这一条已停止，接着处理新的消息。",
    en: "A newer message arrived, so I stopped here and go on with that one.",
  },
  cancelled: { zh: "已取消。", en: "Cancelled." },
  failed: {
    zh: "抱歉，模型服务出错，这条消息没有得到回答。",
    en: "Sorry, the model service failed and this message was not answered.",
  },
  failedForNow: {
    zh: "抱歉，模型服务暂时不可用，请稍后再试。",
    en: "Sorry, the model service is not available right now. Please try again later.",
  },
  tooLong: {
    zh: "对话太长，模型无法继续，请开始新的对话。",
    en: "The conversation is too long for the model. Please start a new one.",
  },
  abandoned: {
    zh: "抱歉，处理这条消息时多次出错，已放弃。已执行的操作不会撤销。",
    en: "Sorry, handling this message failed several times and was given up. Actions already taken are not undone.",
  },
  settingsLost: {
    zh: "这个对话的设置无法读取，已恢复为默认设置。",
    en: "The settings of this conversation could not be read and are back to the defaults.",
  },
  summaryLost: {
    zh: "较早对话的摘要无法读取，其中的内容不再影响回答。",
    en: "The summary of the earlier conversation could not be read; what it held no longer affects the answers.",
  },
  filesUnread: { zh: "无法读取文件：{files}", en: "Could not be read: {files}" },
  queued: {
    zh: "已收到，前面还有 {ahead} 条消息，轮到后会回答。",
    en: "Received. Messages before this one: {ahead}. I will answer in turn.",
  },
  busy: {
    zh: "我正在处理上一条消息，这条没有被处理。请等我回答完，或发送 /停止 后再试。",
    en: "I am still working on an earlier message, so this one was not taken. Please wait for my answer, or send /stop first.",
  },
  nothingToStop: { zh: "现在没有正在进行的任务。", en: "Nothing is running right now." },
  stopping: { zh: "正在停止。", en: "Stopping." },
  notAllowedToStop: {
    zh: "这个任务只能由 {who} 停止。",
    en: "Only {who} can stop this one.",
  },
  late: {
    zh: "这条消息 {minutes} 分钟前发出，现在才送达，还没有处理。现在还需要处理吗？",
    en: "This message reached me {minutes} minutes after it was written and was not acted on. Shall I still do it?",
  },
  approvalNeeded: {
    zh: "工具 {tool} 需要有人批准后才能执行。",
    en: "The tool {tool} needs somebody's approval before it runs.",
  },
  addressAsked: {
    zh: "读取外部内容后，模型要访问没有人提到过的地址：{addresses}。地址里可能带有对话中的内容，请确认后再批准。",
    en: "After reading text from outside, the model wants to reach an address that nobody here has named: {addresses}. It may carry what was said here, so look at it before you approve.",
  },
  riskFound: {
    zh: "操作内容有风险：{patterns}。",
    en: "What it is going to do is risky: {patterns}.",
  },
  outcomeUnknown: {
    zh: "{tool} 已开始执行，但结果未知，可能已经生效。请检查后决定如何处理。",
    en: "{tool} was started and its outcome is unknown: it may have taken effect. Please check, then decide.",
  },
  ruleRevoked: { zh: "已撤销规则 {rule}，以后会重新询问。", en: "The rule {rule} is revoked: people are asked again." },
  ruleUnknown: {
    zh: "没有名为“{rule}”的规则。用 /权限 查看现有规则。",
    en: "There is no rule “{rule}” here. See them with /permissions.",
  },
  notAllowedToRevoke: {
    zh: "这条规则只能由 {who} 撤销。",
    en: "Only {who} can revoke this rule.",
  },
  modelUnknown: {
    zh: "没有名为“{model}”的模型可选。",
    en: "There is no model “{model}” to choose here.",
  },
  modelChosen: { zh: "这个对话现在使用模型 {model}。", en: "This conversation now uses the model {model}." },
  modelReset: {
    zh: "这个对话恢复使用默认模型 {model}。",
    en: "This conversation is back to the default model {model}.",
  },
  compacted: {
    zh: "已压缩对话：约 {before} 个 token 减到约 {after} 个。之前的内容保留为摘要。",
    en: "The conversation was compacted from about {before} to about {after} tokens. What came before is kept as a summary.",
  },
  shortened: {
    zh: "无法生成摘要，因此直接移除了较早的内容：约 {before} 个 token 减到约 {after} 个。",
    en: "No summary could be made, so the older part was left out: from about {before} to about {after} tokens.",
  },
  nothingToCompact: {
    zh: "没有更早的内容可以压缩。",
    en: "There is nothing older to compact.",
  },
  newConversation: {
    zh: "已开始新的对话，之前的内容不再影响回答。",
    en: "A new conversation has begun. What was said before no longer affects the answers.",
  },
} as const satisfies Record<string, Record<ReplyLanguage, string>>;

/** Longest value that a notice repeats, in characters. */
const maxValueChars = 200;

/** The notice in one language. Values are cut to size and to one line; a missing one stays visible. */
export function noticeText(name: NoticeName, language: ReplyLanguage, values: NoticeValues = {}): string {
  return notices[name][language].replaceAll(/\{(\w+)\}/g, (whole, key: string) => {
    const value = Object.hasOwn(values, key) ? values[key] : undefined;
    return value === undefined ? whole : oneLine(String(value), maxValueChars);
  });
}

/** The text without line breaks and other control characters, cut to size between characters. */
export function oneLine(text: string, maxChars: number): string {
  const line = text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu, " ").trim();
  return line.length > maxChars ? `${textHead(line, maxChars - 1)}…` : line;
}

/** Foreign words as code within a line of Markdown, which they cannot leave. */
export function inlineCode(text: string, maxChars = maxValueChars): string {
  return `\`${oneLine(text.replaceAll("`", "'"), maxChars)}\``;
}

/**
 * The language a text is written in: Chinese when it holds at least as many Chinese characters as words in other
 * letters. A question about one Chinese word is English, a Chinese sentence with the name of a file is Chinese.
 * Of people who write neither, English is expected to be read.
 */
export function languageOf(text: string): ReplyLanguage {
  const characters = text.match(/\p{Script=Han}/gu)?.length ?? 0;
  // Japanese has characters too: each of its kana counts.
  const kana = String.raw`\p{Script=Hiragana}\p{Script=Katakana}`;
  const others = new RegExp(String.raw`[${kana}]|[[\p{L}\p{M}'’]--[\p{Script=Han}${kana}]]+`, "gv");
  const words = text.match(others)?.length ?? 0;
  return characters > 0 && characters >= words ? "zh" : "en";
}

/**
 * The language of the texts around the answer to a message: the configured one, else that of the person's
 * own words. By the time that a turn begins, the parts hold what others have said as well.
 */
export function languageOfMessage(
  { parts, language }: Pick<InboundMessage, "parts" | "language">,
  configured?: ReplyLanguage,
): ReplyLanguage {
  return configured ?? language ?? languageOf(textOf({ role: "user", content: parts }));
}

/** Sent and stored when the step limit is reached; the same in every language, by contract. Cards say it in the person's. */
export const exhaustedText = "[Reached the maximum number of steps without completing the request.]";
