"""Names, towns, sights and addresses like those of the contest's travellers. Everything here is a function of its
arguments, so that generators of requests know the data without storing it."""

MEN = "Пётр Иван Степан Фёдор Юлий Владислав Ростислав Анатолий Всеволод Даниил Борислав Семён Антон Леонид".split()
WOMEN = "Анна Злата Ксения Ольга Маргарита Ярослава Инна Василиса Элина Наталья Юлия Тамара Аполлинария".split()
LAST_BEGINS = "Фет Тер Хопе Лукан Данлен Кис Пенат Лебот Стам Эрлев Вас Луб Хоп".split()
LAST_ENDS_M = "атосян лецкий линый ушувич овиный енко ленчев танец".split()
LAST_ENDS_F = "аточная ленова кисова линая ашева енко ленчева танская".split()
COUNTRIES = (
    "Россия Италия Испания Франция Германия Аргентина Исландия Эфиопия Пакистан Таиланд Венгрия Греция Куба Малави "
    "Норвегия Чили Швеция Эстония Япония Перу Вьетнам Болгария Бразилия Египет Финляндия Канада"
).split() + ["Кот-д'Ивуар", "Новая Зеландия", "Шри-Ланка", "Босния & Герцеговина", "Сан-Томе и Принсипи", "South Korea"]
CITY_BEGINS = "Ново Верхне Светло Красно Санкт- Мос Амстер Волго Сан- Рос Лис Муром Кис Лей Бел".split()
CITY_ENDS = "град ск дам поль лёв бона ква рес город тан берг даль".split()
SIGHTS = (
    "Кольский полуостров|Набережная|Фонтан|Ресторан «Прага»|Монумент|Замок|Двор|Мост|Ратуша|Пагода|Водопад|Улица|Сад|Дача|"
    "Кафе \"У Палыча\"|Бар \\o/|Парк 🎡|Музей: вход\tсправа|C'est la vie|Foo & Bar <b>"
).split("|")
MAIL_WORDS = "wibylcudestiwuk opeitdedtelhets nedolgaseavtys tomsyfyhetiras ehhettaltateynes ursetnenaveipyot".split()
MAIL_HOSTS = "icloud.com gmail.com yandex.ru mail.ru list.me inbox.com rambler.ru ya.ru".split()


def email_of(user):
    """The email address that a user has at first; it is unique."""
    return f"{MAIL_WORDS[user * 7 % 6]}{user}@{MAIL_HOSTS[user * 5 % 8]}"


def years_before(seconds, years):
    """The same day and time this many calendar years before; the 29th of February becomes the 28th."""
    days, time = divmod(seconds, 86400)
    year, month, day = date_of(days)
    year -= years
    if (month, day) == (2, 29) and (year % 4 or (year % 100 == 0 and year % 400)):
        day = 28
    return days_to(year, month, day) * 86400 + time


def days_to(year, month, day):
    """Days from 1970 to a date of the Gregorian calendar, in any year."""
    year -= month <= 2
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719468


def date_of(days):
    """The date of a number of days since 1970: the inverse of `days_to`, found by trying."""
    year = 1970 + min(days // 366, days // 365)
    while days_to(year + 1, 1, 1) <= days:
        year += 1
    month = next(month for month in range(12, 0, -1) if days_to(year, month, 1) <= days)
    return year, month, days - days_to(year, month, 1) + 1
