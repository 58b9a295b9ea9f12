//! The macro that makes [`Config`](super::Config) from one list: the fields, their defaults, and the list of sections.
//!
//! A line `name: Type = default` is a plain value. A line `name: Type` is a section, whose type has a `Default` and
//! implements `ConfigSection`. So a new section is one line, its `cfg` included.

macro_rules! config {
    ($(
        $(#[doc $($doc:tt)*])*
        $(#[cfg($($cfg:tt)*)])?
        $name:ident: $type:ty $(= $default:expr)?,
    )*) => {
        #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "camelCase", default)]
        pub(crate) struct Config {
            $(
                $(#[doc $($doc)*])*
                $(#[cfg($($cfg)*)])?
                pub(crate) $name: $type,
            )*
        }

        impl Default for Config {
            fn default() -> Config {
                Config {
                    $(
                        $(#[cfg($($cfg)*)])?
                        $name: config!(@default $($default)?),
                    )*
                }
            }
        }

        impl Config {
            /// Every section with its key, such as `shell`.
            #[allow(clippy::vec_init_then_push, reason = "a section may be compiled out")]
            fn sections(&self) -> Vec<(String, &dyn ConfigSection)> {
                let mut sections: Vec<(String, &dyn ConfigSection)> = Vec::new();
                $(
                    $(#[cfg($($cfg)*)])?
                    config!(@push sections, stringify!($name), &self.$name $(, $default)?);
                )*
                sections
            }

            #[allow(clippy::vec_init_then_push, reason = "a section may be compiled out")]
            fn sections_mut(&mut self) -> Vec<(String, &mut dyn ConfigSection)> {
                let mut sections: Vec<(String, &mut dyn ConfigSection)> = Vec::new();
                $(
                    $(#[cfg($($cfg)*)])?
                    config!(@push sections, stringify!($name), &mut self.$name $(, $default)?);
                )*
                sections
            }

            /// Every section under its type, as domains read them.
            pub(crate) fn sections_by_type(&self) -> gantry_domain::ConfigSections {
                let sections = gantry_domain::ConfigSections::default();
                $(
                    $(#[cfg($($cfg)*)])?
                    let sections = config!(@with sections, &self.$name $(, $default)?);
                )*
                sections
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@push $sections:ident, $name:expr, $section:expr) => {
        $sections.push((declare::camel_case($name), $section))
    };
    (@push $sections:ident, $name:expr, $value:expr, $default:expr) => {};
    (@with $sections:ident, $section:expr) => { $sections.with(Clone::clone($section)) };
    (@with $sections:ident, $value:expr, $default:expr) => { $sections };
}

/// The key of a field in the file: `mcp_servers` is `mcpServers`.
pub(super) fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut key = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        key.push_str(&first.to_ascii_uppercase());
        key.push_str(rest);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::camel_case;

    #[test]
    fn keys_of_sections_are_those_of_the_file() {
        assert_eq!(camel_case("shell"), "shell");
        assert_eq!(camel_case("mcp_servers"), "mcpServers");
        let config = Config::default();
        let written = serde_json::to_value(&config).unwrap();
        for (key, _) in config.sections() {
            assert!(written.get(&key).is_some(), "{key}");
        }
    }
}
