import type { Language } from "./words.ts";

/** What Feishu's client shows when a card callback fails, by code ("Card callback communication"). */
const meanings: Readonly<Record<number, Readonly<Record<Language, string>>>> = {
  200340: { zh: "应用没有配置卡片回调", en: "The app has no card callback" },
  200341: { zh: "机器人没有在 3 秒内回应", en: "The bot did not answer within 3 seconds" },
  200342: { zh: "连接不上机器人", en: "The bot cannot be reached" },
  200343: { zh: "回调地址的域名无法解析", en: "The callback's host name cannot be resolved" },
  200671: { zh: "回调没有返回 200", en: "The callback did not answer with 200" },
  200672: { zh: "回调的返回内容格式不对", en: "The callback's answer has the wrong form" },
  200673: { zh: "回调返回的卡片有误", en: "The callback's card is wrong" },
  200830: { zh: "2.0 卡片不能换成 1.0 卡片", en: "A 2.0 card cannot become a 1.0 card" },
};

/** A failed callback in words, with its code. */
export function clientError(code: number, language: Language): string {
  const unknown = { zh: "操作没有成功", en: "It did not work" };
  return `${(meanings[code] ?? unknown)[language]} (${code})`;
}
