/**
 * OpenAI's SDK. It is a project of its own so that `npm start` without a model of OpenAI's interface leaves these 35 MB
 * out (infra/dev/launcher/set-up.mjs); packages/model/src/openai alone imports it, with the first model that needs it.
 */
export { OpenAI } from "openai";
