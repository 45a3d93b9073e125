export {
  deploymentFiles,
  keptSecretsFile,
  standardConfig,
  type DeploymentFile,
} from "./deployment-files.ts";
export { openFolder, type Folder } from "./folder.ts";
export { secretsFrom, type Secrets } from "./secrets.ts";
export { adminValues, runnerValues, serviceValues, type Known } from "./service-values.ts";
export { services, settingsOf, type Service } from "./settings.ts";
