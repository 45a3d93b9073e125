import { createFeishuApi } from "./index.ts";
import { closeRedis, connectRedis, createRedisRateGovernor, createRedisTokenCache } from "../../session-redis/src/index.ts";
const [, , url = "", redisUrl = "", idx = "0", chatsJson = "[]"] = process.argv;
const chats: string[] = JSON.parse(chatsJson);
const redis = connectRedis(redisUrl);
const api = createFeishuApi({ appId: "cli_0123456789abcdef", appSecret: "secret", domain: url, tokenCache: createRedisTokenCache({ redis }), governor: createRedisRateGovernor({ redis }) });
const end = Date.now() + 20_000;
const stats: Record<string, number> = {};
const hit = (k: string) => { stats[k] = (stats[k] ?? 0) + 1; };
const finals: number[] = []; const shown: number[] = []; const t0 = performance.now();
await Promise.all(chats.map(async (chatId, i) => {
  try {
    const cardId = await api.cards.create({ schema: "2.0", config: { streaming_mode: true }, body: { elements: [{ tag: "markdown", element_id: "e", content: "x" }] } }, { maxWaitMs: 60_000 });
    await api.cards.sendTo({ cardId, receiveIdType: "chat_id", receiveId: chatId, uuid: `u${idx}-${i}` }, { maxWaitMs: 60_000 });
    hit("shown"); shown.push(performance.now() - t0);
    let seq = 0, text = "x";
    while (Date.now() < end) {
      text += "abc"; seq += 1;
      try { await api.cards.content({ cardId, elementId: "e", content: text, sequence: seq, uuid: `c${seq}` }, { lane: "frame" }); hit("frame"); }
      catch (e: any) { hit(e.heldBack ? "held" : `${e.kind}:${e.code}`); await new Promise((r) => setTimeout(r, Math.max(100, e.retryAfterMs ?? 0))); }
      await new Promise((r) => setTimeout(r, 100));
    }
    const t = performance.now(); seq += 1;
    await api.cards.content({ cardId, elementId: "e", content: text + "end", sequence: seq, uuid: `c${seq}` }, { maxWaitMs: 60_000 });
    finals.push(performance.now() - t); hit("final");
  } catch (e: any) { hit(`fail:${e.kind}:${e.code}:${e.heldBack}`); }
}));
finals.sort((a, b) => a - b); shown.sort((a, b) => a - b);
console.log(idx, JSON.stringify(stats), "shown p50", shown[shown.length >> 1]?.toFixed(0), "max", shown.at(-1)?.toFixed(0), "final p50", finals[finals.length >> 1]?.toFixed(0), "max", finals.at(-1)?.toFixed(0));
api.close(); await closeRedis(redis);
