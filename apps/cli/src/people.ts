import { once } from "node:events";
import type { Writable } from "node:stream";
import type { Bilingual, Language } from "./language.ts";
import { deletePerson, type DeletionCounts } from "./person-deletion.ts";
import { exportPerson } from "./person-export.ts";
import type { Person } from "./person-sessions.ts";
import { openPersonStores, type PersonStores, type PersonStoresOptions } from "./person-stores.ts";

/** What to do where no app is named. */
export const noApp: Bilingual = {
  zh: "不知道是哪个应用：请用 --app 指定，或设置 FEISHU_APP_ID。",
  en: "It is not known which app is meant: name it with --app, or set FEISHU_APP_ID.",
};

export interface PeopleTask {
  action: "export" | "delete";
  person: Person;
  /** Delete, not only count. */
  yes: boolean;
  language: Language;
  places: Omit<PersonStoresOptions, "onError">;
  output: Writable;
}

/** How long workers may take to end what they are doing for the person. */
const patienceMs = 60_000;
const intervalMs = 250;

function summaryOf({ act, counts }: { act: boolean; counts: DeletionCounts }): Bilingual {
  const { sessions, groups, messages, archived, files, rules } = counts;
  const zh = `整个会话 ${sessions} 个，群会话 ${groups} 个；Redis 中消息 ${messages} 条，归档中 ${archived} 条，文件 ${files} 个，规则 ${rules} 条`;
  const en =
    `${sessions} conversations as a whole, and what they wrote in ${groups} of groups: ${messages} messages in Redis, ` +
    `${archived} in the archive, ${files} files; ${rules} rules`;
  if (act) return { zh: `已删除：${zh}。`, en: `Deleted: ${en}.` };
  return {
    zh: `将删除：${zh}。尚未删除任何内容，加 --yes 执行。`,
    en: `To delete: ${en}. Nothing is deleted yet: add --yes.`,
  };
}

async function print(output: Writable, line: string): Promise<void> {
  if (!output.write(`${line}\n`)) await once(output, "drain");
}

async function obey(stores: PersonStores, { action, person, yes, language, output }: PeopleTask): Promise<void> {
  if (action === "export") {
    for await (const fact of exportPerson(stores, person)) await print(output, JSON.stringify(fact));
    return;
  }
  const counts = await deletePerson(stores, person, { act: yes, patienceMs, intervalMs });
  await print(output, summaryOf({ act: yes, counts })[language]);
}

/** Exports or deletes what is stored of a person. Rejects when it could not be done to the end. */
export async function lookAfterPerson(task: PeopleTask): Promise<void> {
  let lastError: Error | undefined;
  const stores = openPersonStores({ ...task.places, onError: (error) => (lastError = error) });
  try {
    await obey(stores, task);
  } catch (error) {
    // A connection that fails says more than the wait that it ended.
    throw lastError ?? error;
  } finally {
    await stores.close();
  }
}
