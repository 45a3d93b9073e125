/** Language of the texts a person reads. */
export type Language = "zh" | "en";

/** What a person is told when the model's own words are missing or not the whole story. */
export type NoticeName = keyof typeof notices;

const notices = {
  empty: {
    zh: "模型没有给出任何回答，请换个说法再试一次。",
    en: "The model gave no answer. Please try again in other words.",
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
  cancelled: { zh: "已停止。", en: "Stopped." },
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
} as const satisfies Record<string, Record<Language, string>>;

/** The notice in one language. */
export function noticeText(name: NoticeName, language: Language): string {
  return notices[name][language];
}

/** The language a text is written in: Chinese when it holds a Chinese character. */
export function languageOf(text: string): Language {
  return /\p{Script=Han}/u.test(text) ? "zh" : "en";
}

/** Sent and stored when the step limit is reached; the same in every language, by contract. */
export const exhaustedText = "[Reached the maximum number of steps without completing the request.]";
